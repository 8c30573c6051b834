// The four verbs of tests/interop/kafka/programs/protocol.py through Apache Kafka's own client.
// Run from source: java -cp 'jars/*' Interop.java produce --bootstrap ...

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Interop {
    // As in programs/protocol.py.
    static final int PARTITIONS_AT_FIRST = 2;
    static final int PARTITIONS_LATER = 4;
    static final String RETENTION_MS = "86400000";
    static final String MESSAGE_BYTES = "2000000";
    static final int RECORDS = 10;
    static final long DELETE_BEFORE = 4;
    static final long COMMITTED = 7;

    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, String> arguments = new HashMap<>();

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            String name = args[i].substring(2);
            arguments.put(name, name.equals("idempotent") ? "true" : args[++i]);
        }
        switch (args[0]) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "member" -> member();
            case "admin" -> say(new Steps().all());
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static synchronized void say(Object row) throws Exception {
        System.out.println(JSON.writeValueAsString(row));
    }

    static String topic() {
        return arguments.get("topic");
    }

    static Properties settings(String... pairs) {
        Properties found = new Properties();
        found.put("bootstrap.servers", arguments.get("bootstrap"));
        for (int i = 0; i < pairs.length; i += 2) {
            found.put(pairs[i], pairs[i + 1]);
        }
        return found;
    }

    static KafkaProducer<byte[], byte[]> producer() {
        Properties settings = settings(
            "compression.type", arguments.getOrDefault("compression", "none"),
            "enable.idempotence", arguments.getOrDefault("idempotent", "false"),
            "linger.ms", "20");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String... pairs) {
        return new KafkaConsumer<>(
            settings(pairs), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void produce() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                sent.add(producer.send(record(JSON.readTree(line))));
            }
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata place = future.get();
                say(Map.of("partition", place.partition(), "offset", place.offset()));
            }
        }
    }

    static ProducerRecord<byte[], byte[]> record(JsonNode row) throws Exception {
        Integer partition = row.get("partition").isNull() ? null : row.get("partition").asInt();
        Long timestamp = row.get("timestamp").isNull() ? null : row.get("timestamp").asLong();
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            topic(), partition, timestamp, bytes(row.get("key")), bytes(row.get("value")));
        for (JsonNode header : row.get("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    static void show(ConsumerRecord<byte[], byte[]> record) throws Exception {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value());
            headers.add(pair);
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("partition", record.partition());
        row.put("offset", record.offset());
        row.put("timestamp", record.timestamp());
        row.put("key", record.key());
        row.put("value", record.value());
        row.put("headers", headers);
        say(row);
    }

    static void consume() throws Exception {
        int left = Integer.parseInt(arguments.get("count"));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            if (arguments.containsKey("from-ms")) {
                TopicPartition place = new TopicPartition(topic(), 0);
                long from = Long.parseLong(arguments.get("from-ms"));
                consumer.assign(List.of(place));
                consumer.seek(place, consumer.offsetsForTimes(Map.of(place, from)).get(place).offset());
            } else {
                List<TopicPartition> places = new ArrayList<>();
                for (int n = 0; n < Integer.parseInt(arguments.get("partitions")); n++) {
                    places.add(new TopicPartition(topic(), n));
                }
                consumer.assign(places);
                consumer.seekToBeginning(places);
            }
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (left-- > 0) {
                        show(record);
                    }
                }
            }
        }
    }

    static void member() throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer(
            "group.id", arguments.get("group"), "auto.offset.reset", "earliest",
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "500");
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            consumer.subscribe(List.of(topic()), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    List<Integer> held =
                        consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
                    try {
                        say(Map.of("assigned", held));
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }
            });
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    show(record);
                }
            }
        } catch (WakeupException stopped) {
            consumer.close();
        } finally {
            closed.countDown();
        }
    }

    /** The admin round trip: step by step, what was seen. Outcomes are Kafka's error codes. */
    static class Steps {
        final Map<String, Object> seen = new LinkedHashMap<>();
        final TopicPartition place = new TopicPartition(topic(), 0);
        final String group = arguments.get("group");

        Map<String, Object> all() throws Exception {
            try (Admin admin = Admin.create(settings())) {
                topics(admin);
                groups(admin);
                removals(admin);
            }
            return seen;
        }

        void topics(Admin admin) throws Exception {
            NewTopic wanted = new NewTopic(topic(), PARTITIONS_AT_FIRST, (short) 1)
                .configs(Map.of("retention.ms", RETENTION_MS));
            NewTopic wrong = new NewTopic(topic() + "-x", 1, (short) 1)
                .configs(Map.of("no.such", "1"));
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic());
            AlterConfigOp change = new AlterConfigOp(
                new ConfigEntry("max.message.bytes", MESSAGE_BYTES), AlterConfigOp.OpType.SET);
            Callable<Object> count = () -> admin.describeTopics(List.of(topic()))
                .allTopicNames().get().get(topic()).partitions().size();
            seen.put("created", outcome(() -> admin.createTopics(List.of(wanted)).all().get()));
            seen.put("created again", outcome(() -> admin.createTopics(List.of(wanted)).all().get()));
            seen.put("bad config", outcome(() -> admin.createTopics(List.of(wrong)).all().get()));
            seen.put("partitions", settled(count, PARTITIONS_AT_FIRST));
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            seen.put("configs", settled(() -> {
                Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
                return List.of(found.get("retention.ms").value(), found.get("max.message.bytes").value());
            }, List.of(RETENTION_MS, MESSAGE_BYTES)));
            admin.createPartitions(Map.of(topic(), NewPartitions.increaseTo(PARTITIONS_LATER))).all().get();
            seen.put("more partitions", settled(count, PARTITIONS_LATER));
        }

        void groups(Admin admin) throws Exception {
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(place, new OffsetAndMetadata(COMMITTED));
            Callable<Object> listed = () -> admin.listGroups().all().get().stream()
                .anyMatch(found -> found.groupId().equals(group));
            admin.alterConsumerGroupOffsets(group, offsets).all().get();
            seen.put("committed", admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata().get().get(place).offset());
            seen.put("group state", admin.describeConsumerGroups(List.of(group))
                .all().get().get(group).groupState().toString().toLowerCase());
            seen.put("group listed", listed.call());
            seen.put("group deleted", outcome(() -> admin.deleteConsumerGroups(List.of(group)).all().get()));
            seen.put("group listed after", listed.call());
        }

        void removals(Admin admin) throws Exception {
            try (KafkaProducer<byte[], byte[]> producer = producer()) {
                for (int n = 0; n < RECORDS; n++) {
                    byte[] value = Integer.toString(n).getBytes();
                    producer.send(new ProducerRecord<>(topic(), 0, null, value)).get();
                }
            }
            seen.put("low watermark", admin.deleteRecords(
                Map.of(place, RecordsToDelete.beforeOffset(DELETE_BEFORE)))
                .lowWatermarks().get(place).get().lowWatermark());
            seen.put("bounds", List.of(offset(admin, OffsetSpec.earliest()), offset(admin, OffsetSpec.latest())));
            Callable<Object> remove = () -> outcome(() -> admin.deleteTopics(List.of(topic())).all().get());
            seen.put("deleted", remove.call());
            seen.put("deleted again", settled(remove, Errors.UNKNOWN_TOPIC_OR_PARTITION.code()));
        }

        long offset(Admin admin, OffsetSpec spec) throws Exception {
            return admin.listOffsets(Map.of(place, spec)).all().get().get(place).offset();
        }

        int outcome(Callable<?> call) throws Exception {
            try {
                call.call();
            } catch (ExecutionException error) {
                return Errors.forException(error.getCause()).code();
            }
            return 0;
        }

        /** What look sees, once it is what is expected or 10 s are over. */
        Object settled(Callable<Object> look, Object expected) throws Exception {
            Object found = null;
            for (int i = 0; i < 200; i++) {
                try {
                    found = look.call();
                } catch (ExecutionException notYet) {
                    found = notYet.getCause().toString();
                }
                if (found.toString().equals(expected.toString())) {
                    return found;
                }
                Thread.sleep(50);
            }
            return found;
        }
    }
}
