import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ's Java client of any version: produces and consumes, and prints what it sees. */
public final class RocketMqInterop {
  private static final int WITHIN_S = 90;
  private static final int ORDERED = 6;

  public static void main(String[] args) throws Exception {
    String nameServer = args[0];
    String stem = args[1];
    DefaultMQProducer producer = new DefaultMQProducer(stem + "-producers");
    producer.setNamesrvAddr(nameServer);
    producer.setSendMsgTimeout(WITHIN_S * 1000);
    producer.start();
    send(producer, stem);
    sendOrdered(producer, stem + "-ordered");
    producer.shutdown();
    consume(nameServer, stem);
    consumeOrdered(nameServer, stem + "-ordered");
    System.exit(0);
  }

  private static void send(DefaultMQProducer producer, String topic) throws Exception {
    Message first = new Message(topic, "TagA", "k1 k2", bytes("hello"));
    first.putUserProperty("colour", "red");
    SendResult result = producer.send(first, (queues, message, arg) -> queues.get(0), null);
    say("sent", result.getSendStatus() + " " + result.getQueueOffset());
    producer.send(new Message(topic, "TagB", bytes("passed over")));
    producer.send(new Message(topic, "TagA", new byte[20_000])); // the client compresses it
    List<Message> batch = new ArrayList<>();
    for (int number = 0; number < 3; number++) {
      batch.add(new Message(topic, "TagA", bytes("batch " + number)));
    }
    say("batch", producer.send(batch).getSendStatus().toString());
    Message later = new Message(topic, "TagA", bytes("later"));
    later.setDelayTimeLevel(1);
    say("delayed", producer.send(later).getSendStatus().toString());
    try {
      Message half = new Message(topic, bytes("half"));
      MessageAccessor.putProperty(half, "TRAN_MSG", "true");
      producer.setRetryTimesWhenSendFailed(0);
      producer.send(half, (queues, message, arg) -> queues.get(0), null);
    } catch (MQBrokerException error) {
      say("half", String.valueOf(error.getResponseCode()));
    }
  }

  private static void sendOrdered(DefaultMQProducer producer, String topic) throws Exception {
    for (int number = 0; number < ORDERED; number++) {
      Message message = new Message(topic, "TagA", bytes(String.valueOf(number)));
      producer.send(message, (queues, one, arg) -> queues.get((Integer) arg % 2), number);
    }
  }

  private static void consume(String nameServer, String topic) throws Exception {
    BlockingQueue<MessageExt> seen = new LinkedBlockingQueue<>();
    DefaultMQPushConsumer consumer = consumer(nameServer, topic + "-group", topic, "TagA");
    consumer.registerMessageListener(
        (MessageListenerConcurrently)
            (messages, context) -> {
              seen.addAll(messages);
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
    List<String> bodies = new ArrayList<>();
    while (bodies.size() < 6) {
      MessageExt message = seen.poll(WITHIN_S, TimeUnit.SECONDS);
      if (message == null) {
        break;
      }
      byte[] body = message.getBody();
      bodies.add(body.length > 100 ? "large " + body.length : text(body));
      if (text(body).equals("hello")) {
        say(
            "first",
            String.join(
                "|",
                message.getTags(),
                message.getKeys(),
                message.getUserProperty("colour"),
                String.valueOf(message.getMsgId().length())));
      }
    }
    bodies.sort(null);
    say("consumed", String.join(",", bodies));
    say("ready", "for others");
    MessageExt other = seen.poll(WITHIN_S, TimeUnit.SECONDS);
    say(
        "other",
        other == null ? "nothing" : text(other.getBody()) + "|" + other.getUserProperty("plain"));
    consumer.shutdown();
  }

  private static void consumeOrdered(String nameServer, String topic) throws Exception {
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    DefaultMQPushConsumer consumer = consumer(nameServer, topic + "-group", topic, "*");
    consumer.registerMessageListener(
        (MessageListenerOrderly)
            (messages, context) -> {
              for (MessageExt message : messages) {
                seen.add(message.getQueueId() + ":" + text(message.getBody()));
              }
              return ConsumeOrderlyStatus.SUCCESS;
            });
    consumer.start();
    StringBuilder[] queues = {new StringBuilder(), new StringBuilder()};
    for (int count = 0; count < ORDERED; count++) {
      String one = seen.poll(WITHIN_S, TimeUnit.SECONDS);
      if (one == null) {
        break;
      }
      queues[one.charAt(0) - '0'].append(one.substring(2));
    }
    say("ordered", queues[0] + "," + queues[1]);
    consumer.shutdown();
  }

  private static DefaultMQPushConsumer consumer(
      String nameServer, String group, String topic, String tags) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
    consumer.setNamesrvAddr(nameServer);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(topic, tags);
    return consumer;
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] data) {
    return new String(data, StandardCharsets.UTF_8);
  }

  private static void say(String step, String seen) {
    System.out.println("> " + step + " " + seen);
  }

  private RocketMqInterop() {}
}
