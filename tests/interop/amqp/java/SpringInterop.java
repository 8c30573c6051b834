import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageListener;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.DirectMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.adapter.MessageListenerAdapter;
import org.springframework.amqp.rabbit.listener.api.ChannelAwareMessageListener;

/** Spring AMQP: templates, listener containers and declarations print what they see. */
public final class SpringInterop {
  private static final int WITHIN_S = 60;
  private static final int RETRY_MS = 100;

  private final CachingConnectionFactory factory;
  private final RabbitAdmin admin;
  private final RabbitTemplate template;
  private final String stem;

  private SpringInterop(int port, String stem) {
    this.stem = stem;
    factory = new CachingConnectionFactory("127.0.0.1", port);
    factory.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
    factory.setPublisherReturns(true);
    admin = new RabbitAdmin(factory);
    template = new RabbitTemplate(factory);
    template.setMandatory(true);
    template.setReplyTimeout(WITHIN_S * 1000L);
    template.afterPropertiesSet();
  }

  public static void main(String[] args) throws Exception {
    SpringInterop interop = new SpringInterop(Integer.parseInt(args[0]), args[1]);
    interop.declare();
    interop.sendAndReceive();
    interop.listen();
    interop.acknowledgeByHand();
    interop.retry();
    interop.request();
    interop.delete();
    interop.factory.destroy();
    System.exit(0);
  }

  private void declare() {
    Queue work = QueueBuilder.durable(stem + "-work")
        .deadLetterExchange("").deadLetterRoutingKey(stem + "-wait").build();
    Queue wait = QueueBuilder.durable(stem + "-wait").ttl(RETRY_MS)
        .deadLetterExchange("").deadLetterRoutingKey(stem + "-work").build();
    TopicExchange exchange = new TopicExchange(stem);
    Queue plain = new Queue(stem + "-plain");
    admin.declareExchange(exchange);
    for (Queue one : List.of(work, wait, plain)) {
      admin.declareQueue(one);
      admin.declareQueue(one);
    }
    admin.declareBinding(BindingBuilder.bind(plain).to(exchange).with("a.#"));
    say("declared", admin.getQueueInfo(stem + "-plain").getName().substring(stem.length()));
  }

  private void sendAndReceive() throws Exception {
    CorrelationData sent = new CorrelationData();
    template.convertAndSend(stem, "a.b", "hello", message -> {
      message.getMessageProperties().setHeader("number", 5L);
      message.getMessageProperties().setPriority(7);
      return message;
    }, sent);
    say("confirmed", String.valueOf(sent.getFuture().get(WITHIN_S, TimeUnit.SECONDS).isAck()));

    CorrelationData lost = new CorrelationData();
    template.convertAndSend(stem, "nowhere", "lost", lost);
    boolean isAck = lost.getFuture().get(WITHIN_S, TimeUnit.SECONDS).isAck();
    say("returned", lost.getReturned().getReplyText() + " " + isAck);

    Message got = template.receive(stem + "-plain", WITHIN_S * 1000L);
    say("received", String.join("|", text(got), got.getMessageProperties().getContentType(),
        String.valueOf((Object) got.getMessageProperties().getHeader("number")),
        String.valueOf(got.getMessageProperties().getPriority()),
        got.getMessageProperties().getReceivedRoutingKey()));
    say("none", String.valueOf(template.receive(stem + "-plain")));
  }

  private void listen() throws Exception {
    BlockingQueue<String> came = new LinkedBlockingQueue<>();
    SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);
    container.setConcurrentConsumers(2);
    container.setPrefetchCount(3);
    MessageListener listener = message -> came.add(text(message));
    start(container, "-plain", listener);
    for (int number = 0; number < 20; number++) {
      template.convertAndSend(stem, "a." + number, "m" + number);
    }
    int count = 0;
    while (count < 20 && came.poll(WITHIN_S, TimeUnit.SECONDS) != null) {
      count++;
    }
    container.stop();
    say("listened", count + " left " + admin.getQueueInfo(stem + "-plain").getMessageCount());
  }

  private void acknowledgeByHand() throws Exception {
    BlockingQueue<String> came = new LinkedBlockingQueue<>();
    DirectMessageListenerContainer container = new DirectMessageListenerContainer(factory);
    container.setAcknowledgeMode(AcknowledgeMode.MANUAL);
    ChannelAwareMessageListener listener = (message, channel) -> {
      boolean isAgain = message.getMessageProperties().isRedelivered();
      long tag = message.getMessageProperties().getDeliveryTag();
      if (isAgain) {
        channel.basicAck(tag, false);
      } else {
        channel.basicNack(tag, false, true);
      }
      came.add(String.valueOf(isAgain));
    };
    start(container, "-plain", listener);
    template.convertAndSend(stem, "a.b", "by hand");
    String seen = came.poll(WITHIN_S, TimeUnit.SECONDS) + "," + came.poll(WITHIN_S, TimeUnit.SECONDS);
    container.stop();
    say("by hand", seen + " left " + admin.getQueueInfo(stem + "-plain").getMessageCount());
  }

  /** Rejects a message twice: it comes back from the queue in which dead letters wait. */
  private void retry() throws Exception {
    BlockingQueue<Object> came = new LinkedBlockingQueue<>();
    SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);
    container.setDefaultRequeueRejected(false);
    MessageListener listener = message -> {
      List<Map<String, ?>> deaths = message.getMessageProperties().getXDeathHeader();
      Object count = deaths == null ? 0L : deaths.stream()
          .filter(one -> "rejected".equals(one.get("reason"))).findFirst().get().get("count");
      came.add(count);
      if (!Long.valueOf(2).equals(count)) {
        throw new AmqpRejectAndDontRequeueException("again");
      }
    };
    container.setErrorHandler(error -> {
      throw new AmqpRejectAndDontRequeueException("again", error);
    });
    start(container, "-work", listener);
    template.convertAndSend(stem + "-work", "retried");
    StringBuilder seen = new StringBuilder();
    for (int number = 0; number < 3; number++) {
      seen.append(came.poll(WITHIN_S, TimeUnit.SECONDS));
    }
    container.stop();
    say("retried", seen + " left " + admin.getQueueInfo(stem + "-work").getMessageCount());
  }

  private void request() throws Exception {
    SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);
    start(container, "-plain", new MessageListenerAdapter(new Server(), "answer"));
    say("answered", String.valueOf(template.convertSendAndReceive(stem, "a.b", "ping")));
    container.stop();
  }

  private void start(AbstractMessageListenerContainer container, String queue, MessageListener listener) {
    container.setQueueNames(stem + queue);
    container.setMessageListener(listener);
    container.afterPropertiesSet();
    container.start();
  }

  private void delete() {
    say("purged", String.valueOf(admin.purgeQueue(stem + "-plain")));
    for (String queue : List.of("-work", "-wait", "-plain")) {
      admin.deleteQueue(stem + queue);
    }
    say("deleted", String.valueOf(admin.deleteExchange(stem)));
  }

  /** Answers requests; its method is called by name. */
  public static final class Server {
    public String answer(String question) {
      return question + " pong";
    }
  }

  private static String text(Message message) {
    return new String(message.getBody(), StandardCharsets.UTF_8);
  }

  private static void say(String name, String value) {
    System.out.println("> " + name.replace(' ', '-') + " " + value);
    System.out.flush();
  }
}
