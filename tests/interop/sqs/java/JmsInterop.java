import com.amazon.sqs.javamessaging.AmazonSQSMessagingClientWrapper;
import com.amazon.sqs.javamessaging.ProviderConfiguration;
import com.amazon.sqs.javamessaging.SQSConnection;
import com.amazon.sqs.javamessaging.SQSConnectionFactory;
import com.amazon.sqs.javamessaging.SQSSession;
import jakarta.jms.BytesMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.retries.DefaultRetryStrategy;
import software.amazon.awssdk.services.sqs.model.CreateQueueRequest;

/**
 * Amazon's JMS library on SQS: JmsInterop url region key secret stem.
 *
 * <p>All types of messages, properties, redelivery, a listener, message groups. Prints what it saw
 * as one JSON object.
 */
public final class JmsInterop {
    private static final long COME_MS_MAX = 15_000;
    private static final Map<String, Object> SEEN = new LinkedHashMap<>();

    private static SQSConnection connection;
    private static String stem;

    private static Message next(MessageConsumer consumer) throws Exception {
        Message message = consumer.receive(COME_MS_MAX);
        if (message == null) {
            throw new IllegalStateException("no message came");
        }
        return message;
    }

    private static String hex(byte[] data) {
        StringBuilder out = new StringBuilder();
        for (byte one : data) {
            out.append(String.format("%02x", one));
        }
        return out.toString();
    }

    private static void types(String name) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);

        TextMessage text = session.createTextMessage("hello \u2603");
        text.setJMSCorrelationID("A");
        producer.send(text);
        TextMessage gotText = (TextMessage) next(consumer);
        boolean isSame = gotText.getJMSMessageID().equals(text.getJMSMessageID());
        SEEN.put("text", List.of(gotText.getText(), isSame, gotText.getJMSCorrelationID()));

        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, (byte) 0xff, 0x10});
        producer.send(bytes);
        BytesMessage gotBytes = (BytesMessage) next(consumer);
        byte[] data = new byte[(int) gotBytes.getBodyLength()];
        gotBytes.readBytes(data);
        SEEN.put("bytes", hex(data));

        producer.send(session.createObjectMessage(new ArrayList<>(List.of(1, 2))));
        SEEN.put("object", ((ObjectMessage) next(consumer)).getObject().toString());

        TextMessage marked = session.createTextMessage("x");
        marked.setStringProperty("s", "text");
        marked.setIntProperty("i", 7);
        marked.setBooleanProperty("b", true);
        marked.setDoubleProperty("d", 1.5);
        producer.send(marked);
        Message found = next(consumer);
        SEEN.put(
                "properties",
                List.of(
                        found.getStringProperty("s"),
                        found.getIntProperty("i"),
                        found.getBooleanProperty("b"),
                        found.getDoubleProperty("d")));
        session.close();
    }

    private static void redelivered(String name) throws Exception {
        Session session = connection.createSession(false, SQSSession.UNORDERED_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        session.createProducer(queue).send(session.createTextMessage("again"));
        MessageConsumer consumer = session.createConsumer(queue);
        Message first = next(consumer);
        session.recover();
        Message again = next(consumer);
        again.acknowledge();
        SEEN.put(
                "redelivered",
                List.of(
                        first.getJMSRedelivered(),
                        again.getJMSRedelivered(),
                        again.getIntProperty("JMSXDeliveryCount")));
        session.close();
    }

    private static void listener(String name) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        session.createConsumer(queue)
                .setMessageListener(
                        message -> {
                            try {
                                came.add(((TextMessage) message).getText());
                            } catch (Exception error) {
                                came.add(error.toString());
                            }
                        });
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = other.createProducer(other.createQueue(name));
        List<String> seen = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            producer.send(other.createTextMessage(String.valueOf(n)));
        }
        for (int n = 0; n < 3; n++) {
            seen.add(String.valueOf(came.poll(COME_MS_MAX, TimeUnit.MILLISECONDS)));
        }
        seen.sort(null);
        SEEN.put("listener", seen);
        session.close();
        other.close();
    }

    private static void groups(String name) throws Exception {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 3; n++) {
            TextMessage message = session.createTextMessage(String.valueOf(n));
            message.setStringProperty("JMSXGroupID", "g");
            message.setStringProperty("JMS_SQS_DeduplicationId", "d" + n);
            producer.send(message);
        }
        MessageConsumer consumer = session.createConsumer(queue);
        List<String> seen = new ArrayList<>();
        String group = "";
        for (int n = 0; n < 3; n++) {
            Message message = next(consumer);
            seen.add(((TextMessage) message).getText());
            group = message.getStringProperty("JMSXGroupID");
            message.acknowledge();
        }
        seen.add(group);
        SEEN.put("groups", seen);
        session.close();
    }

    private static void run(String[] arguments) throws Exception {
        stem = arguments[4];
        SQSConnectionFactory factory =
                new SQSConnectionFactory(
                        new ProviderConfiguration().withNumberOfMessagesToPrefetch(0),
                        SqsInterop.clientOf(
                                arguments, DefaultRetryStrategy.standardStrategyBuilder().build()));
        connection = factory.createConnection();
        AmazonSQSMessagingClientWrapper wrapper = connection.getWrappedAmazonSQSClient();
        for (String suffix : List.of("types", "again", "listener")) {
            wrapper.createQueue(stem + suffix);
        }
        wrapper.createQueue(
                CreateQueueRequest.builder()
                        .queueName(stem + "groups.fifo")
                        .attributesWithStrings(Map.of("FifoQueue", "true"))
                        .build());
        connection.start();
        types(stem + "types");
        redelivered(stem + "again");
        listener(stem + "listener");
        groups(stem + "groups.fifo");
        SqsInterop.print(SEEN);
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // threads of the library would go on
        }
        System.exit(0);
    }
}
