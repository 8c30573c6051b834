import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.CancelCallback;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** RabbitMQ's Java client: {@code scenario} prints what it sees, {@code recover} waits for a restart. */
public final class AmqpInterop {
  private static final int WITHIN_S = 60;
  private static final CancelCallback IGNORED = tag -> {};

  public static void main(String[] args) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setHost("127.0.0.1");
    factory.setPort(Integer.parseInt(args[1]));
    factory.setNetworkRecoveryInterval(200);
    try (Connection connection = factory.newConnection()) {
      if (args[0].equals("scenario")) {
        scenario(connection, args[2]);
      } else {
        recover(connection, args[2]);
      }
    }
    System.exit(0);
  }

  private static void scenario(Connection connection, String stem) throws Exception {
    Channel channel = connection.createChannel();
    String queue = stem + "-q";
    channel.exchangeDeclare(stem, "topic", true);
    channel.queueDeclare(queue, true, false, false, null);
    channel.queueBind(queue, stem, "a.#");
    channel.confirmSelect();
    Map<String, Object> headers = new HashMap<>();
    headers.put("text", "a");
    headers.put("number", 5L);
    AMQP.BasicProperties properties =
        new AMQP.BasicProperties.Builder()
            .contentType("text/plain").correlationId("c1").replyTo("r1").messageId("m1")
            .priority(7).headers(headers).build();
    channel.basicPublish(stem, "a.b", properties, bytes("hello"));
    channel.waitForConfirmsOrDie(WITHIN_S * 1000L);
    say("confirmed", "1");

    BlockingQueue<String> returned = new LinkedBlockingQueue<>();
    channel.addReturnListener(one -> returned.add(one.getReplyCode() + " " + one.getReplyText()));
    channel.basicPublish(stem, "nowhere", true, null, bytes("lost"));
    channel.waitForConfirmsOrDie(WITHIN_S * 1000L);
    say("returned", returned.poll(WITHIN_S, TimeUnit.SECONDS));

    GetResponse got = channel.basicGet(queue, false);
    AMQP.BasicProperties seen = got.getProps();
    say("body", text(got.getBody()));
    say("headers", seen.getHeaders().get("text") + "," + seen.getHeaders().get("number"));
    say("properties", String.join("|", seen.getContentType(), seen.getCorrelationId(),
        seen.getReplyTo(), seen.getMessageId(), String.valueOf(seen.getPriority())));
    channel.basicNack(got.getEnvelope().getDeliveryTag(), false, true);
    got = channel.basicGet(queue, false);
    say("redelivered", String.valueOf(got.getEnvelope().isRedeliver()));
    channel.basicAck(got.getEnvelope().getDeliveryTag(), false);

    say("reply", reply(connection, stem));
    say("stream", stream(connection, stem));
    say("tx", String.valueOf(transaction(connection, queue)));
    say("fault", fault(connection));
    channel.queueDelete(queue);
    channel.exchangeDelete(stem);
  }

  private static String reply(Connection connection, String stem) throws Exception {
    Channel server = connection.createChannel();
    String queue = stem + "-rpc";
    server.queueDeclare(queue, false, true, true, null);
    server.basicConsume(queue, true, (tag, question) -> {
      AMQP.BasicProperties answer = new AMQP.BasicProperties.Builder()
          .correlationId(question.getProperties().getCorrelationId()).build();
      server.basicPublish("", question.getProperties().getReplyTo(), answer, bytes("pong"));
    }, IGNORED);
    Channel client = connection.createChannel();
    BlockingQueue<Delivery> answers = new LinkedBlockingQueue<>();
    client.basicConsume("amq.rabbitmq.reply-to", true, (tag, one) -> answers.add(one), IGNORED);
    AMQP.BasicProperties question = new AMQP.BasicProperties.Builder()
        .replyTo("amq.rabbitmq.reply-to").correlationId("7").build();
    client.basicPublish("", queue, question, bytes("ping"));
    Delivery answer = answers.poll(WITHIN_S, TimeUnit.SECONDS);
    return text(answer.getBody()) + " " + answer.getProperties().getCorrelationId();
  }

  private static String stream(Connection connection, String stem) throws Exception {
    Channel channel = connection.createChannel();
    String name = stem + "-stream";
    channel.queueDeclare(name, true, false, false, Map.of("x-queue-type", "stream"));
    channel.confirmSelect();
    for (int number = 0; number < 3; number++) {
      channel.basicPublish("", name, null, bytes("s" + number));
    }
    channel.waitForConfirmsOrDie(WITHIN_S * 1000L);
    channel.basicQos(2);
    BlockingQueue<Delivery> came = new LinkedBlockingQueue<>();
    channel.basicConsume(name, false, Map.of("x-stream-offset", "first"),
        (tag, one) -> came.add(one), IGNORED);
    List<String> seen = new ArrayList<>();
    for (int number = 0; number < 3; number++) {
      Delivery one = came.poll(WITHIN_S, TimeUnit.SECONDS);
      seen.add(one.getProperties().getHeaders().get("x-stream-offset") + "=" + text(one.getBody()));
      channel.basicAck(one.getEnvelope().getDeliveryTag(), false);
    }
    channel.queueDelete(name);
    return String.join(",", seen);
  }

  private static int transaction(Connection connection, String queue) throws Exception {
    Channel channel = connection.createChannel();
    channel.txSelect();
    channel.basicPublish("", queue, null, bytes("not"));
    channel.txRollback();
    channel.basicPublish("", queue, null, bytes("kept"));
    channel.txCommit();
    return channel.queueDeclarePassive(queue).getMessageCount();
  }

  private static String fault(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    try {
      channel.queueDeclarePassive("there-is-none");
      return "none";
    } catch (IOException error) {
      ShutdownSignalException cause = (ShutdownSignalException) error.getCause();
      return String.valueOf(((AMQP.Channel.Close) cause.getReason()).getReplyCode());
    }
  }

  /** Declares what does not survive a restart, and uses it again once the client has recovered. */
  private static void recover(Connection connection, String stem) throws Exception {
    BlockingQueue<String> recovered = new LinkedBlockingQueue<>();
    ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
      @Override public void handleRecovery(Recoverable one) {
        recovered.add("recovered");
      }

      @Override public void handleRecoveryStarted(Recoverable one) {}
    });
    Channel channel = connection.createChannel();
    channel.exchangeDeclare(stem, "direct", false, true, null);
    String named = channel.queueDeclare().getQueue();
    channel.queueDeclare(stem + "-durable", true, false, false, null);
    channel.queueBind(named, stem, "k");
    channel.queueBind(stem + "-durable", stem, "k");
    BlockingQueue<String> came = new LinkedBlockingQueue<>();
    channel.basicConsume(named, true, (tag, one) -> came.add("named " + text(one.getBody())), IGNORED);
    channel.basicConsume(stem + "-durable", true,
        (tag, one) -> came.add("durable " + text(one.getBody())), IGNORED);
    channel.confirmSelect();
    round(channel, stem, came, "before");
    say("ready", "now");
    say("recovered", String.valueOf(recovered.poll(WITHIN_S, TimeUnit.SECONDS)));
    round(channel, stem, came, "after");
  }

  private static void round(Channel channel, String stem, BlockingQueue<String> came, String body)
      throws Exception {
    channel.basicPublish(stem, "k", null, bytes(body));
    channel.waitForConfirmsOrDie(WITHIN_S * 1000L);
    List<String> seen = new ArrayList<>();
    seen.add(String.valueOf(came.poll(WITHIN_S, TimeUnit.SECONDS)));
    seen.add(String.valueOf(came.poll(WITHIN_S, TimeUnit.SECONDS)));
    seen.sort(null);
    say(body, String.join(",", seen));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] data) {
    return new String(data, StandardCharsets.UTF_8);
  }

  private static void say(String name, String value) {
    System.out.println("> " + name + " " + value);
    System.out.flush();
  }
}
