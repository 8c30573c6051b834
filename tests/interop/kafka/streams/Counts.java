// Counts the records of each key, exactly once: java -cp ... Counts bootstrap id source target dir
// Each record of the source makes one of the target: the key, and its count until then.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public class Counts {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", "1");
        settings.put("statestore.cache.max.bytes", "0"); // else some counts are left out
        settings.put("producer.transaction.timeout.ms", "2000"); // of what a kill leaves open
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.group.instance.id", "one"); // a restarted one takes over at once
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey()
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));
        new KafkaStreams(builder.build(), settings).start();
    }
}
