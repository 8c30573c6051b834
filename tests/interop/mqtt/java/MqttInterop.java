import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt3.Mqtt3BlockingClient;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3Publish;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * HiveMQ's client through the steps of scenario.py: MqttInterop port version stem.
 *
 * Prints what it saw as one JSON object. Its API hides subscription identifiers, and it does not
 * break connections: with 5.0 it asks for its will, with 3.1.1 that step is left out.
 */
public final class MqttInterop {
    private static final int WAIT_S = 10;
    private static final Map<String, Object> SEEN = new TreeMap<>();

    private static int port;
    private static String stem;

    /** What both versions of the client can do. */
    private interface Link {
        boolean open(boolean clean);

        void subscribe(String filter, int qos);

        void unsubscribe(String filter);

        void publish(String topic, byte[] payload, int qos, boolean retain);

        Received next() throws InterruptedException;

        void close();
    }

    private record Received(byte[] payload, int qos, boolean retain) {
        String text() {
            return new String(payload, StandardCharsets.UTF_8);
        }
    }

    private static final class Link5 implements Link {
        final Mqtt5BlockingClient client;
        final Mqtt5BlockingClient.Mqtt5Publishes publishes;

        Link5(String suffix) {
            client =
                    MqttClient.builder()
                            .useMqttVersion5()
                            .identifier(stem + suffix)
                            .serverHost("127.0.0.1")
                            .serverPort(port)
                            .buildBlocking();
            publishes = client.publishes(MqttGlobalPublishFilter.ALL);
        }

        public boolean open(boolean clean) {
            return client.connectWith()
                    .cleanStart(clean)
                    .sessionExpiryInterval(clean ? 0 : 300)
                    .send()
                    .isSessionPresent();
        }

        public void subscribe(String filter, int qos) {
            client.subscribeWith().topicFilter(filter).qos(MqttQos.fromCode(qos)).send();
        }

        public void unsubscribe(String filter) {
            client.unsubscribeWith().topicFilter(filter).send();
        }

        public void publish(String topic, byte[] payload, int qos, boolean retain) {
            client.publishWith()
                    .topic(topic)
                    .payload(payload)
                    .qos(MqttQos.fromCode(qos))
                    .retain(retain)
                    .send();
        }

        Mqtt5Publish nextPublish() throws InterruptedException {
            return publishes.receive(WAIT_S, TimeUnit.SECONDS).orElseThrow();
        }

        public Received next() throws InterruptedException {
            Mqtt5Publish found = nextPublish();
            return new Received(
                    found.getPayloadAsBytes(), found.getQos().getCode(), found.isRetain());
        }

        public void close() {
            client.disconnect();
        }
    }

    private static final class Link3 implements Link {
        final Mqtt3BlockingClient client;
        final Mqtt3BlockingClient.Mqtt3Publishes publishes;

        Link3(String suffix) {
            client =
                    MqttClient.builder()
                            .useMqttVersion3()
                            .identifier(stem + suffix)
                            .serverHost("127.0.0.1")
                            .serverPort(port)
                            .buildBlocking();
            publishes = client.publishes(MqttGlobalPublishFilter.ALL);
        }

        public boolean open(boolean clean) {
            return client.connectWith().cleanSession(clean).send().isSessionPresent();
        }

        public void subscribe(String filter, int qos) {
            client.subscribeWith().topicFilter(filter).qos(MqttQos.fromCode(qos)).send();
        }

        public void unsubscribe(String filter) {
            client.unsubscribeWith().topicFilter(filter).send();
        }

        public void publish(String topic, byte[] payload, int qos, boolean retain) {
            client.publishWith()
                    .topic(topic)
                    .payload(payload)
                    .qos(MqttQos.fromCode(qos))
                    .retain(retain)
                    .send();
        }

        public Received next() throws InterruptedException {
            Mqtt3Publish found = publishes.receive(WAIT_S, TimeUnit.SECONDS).orElseThrow();
            return new Received(
                    found.getPayloadAsBytes(), found.getQos().getCode(), found.isRetain());
        }

        public void close() {
            client.disconnect();
        }
    }

    private static String topic(String levels) {
        return stem + "/" + levels;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String hex(byte[] data) {
        StringBuilder out = new StringBuilder();
        for (byte one : data) {
            out.append(String.format("%02x", one));
        }
        return out.toString();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] out = new byte[buffer.remaining()];
        buffer.duplicate().get(out);
        return out;
    }

    private static void inAll(Link sub, Link pub) throws Exception {
        sub.subscribe(topic("qos/+"), 2);
        List<Object> qualities = new ArrayList<>();
        String[] names = {"zero", "one", "two"};
        for (int qos = 0; qos < names.length; qos++) {
            pub.publish(topic("qos/" + names[qos]), bytes(names[qos]), qos, false);
            Received message = sub.next();
            qualities.add(List.of(message.text(), message.qos()));
        }
        SEEN.put("qos", qualities);

        sub.subscribe(topic("w/#"), 1);
        for (String levels : List.of("w/a", "x/a", "w/a/b")) {
            pub.publish(topic(levels), bytes(levels.substring(2)), 1, false);
        }
        SEEN.put("wildcards", List.of(sub.next().text(), sub.next().text()));

        sub.subscribe(topic("p"), 1);
        pub.publish(topic("p"), new byte[0], 1, false);
        SEEN.put("empty", sub.next().text());
        byte[] large = new byte[256 * 400];
        for (int at = 0; at < large.length; at++) {
            large[at] = (byte) at;
        }
        pub.publish(topic("p"), large, 1, false);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        SEEN.put("large", hex(digest.digest(sub.next().payload())));

        pub.publish(topic("r"), bytes("kept"), 1, true);
        sub.subscribe(topic("r"), 1);
        Received kept = sub.next();
        SEEN.put("retained", List.of(kept.text(), kept.retain()));
        pub.publish(topic("r"), new byte[0], 1, true);
        sub.next();
        sub.unsubscribe(topic("r"));
        sub.subscribe(topic("r"), 1);
        pub.publish(topic("r"), bytes("end"), 1, false);
        SEEN.put("retained after removal", sub.next().text());

        sub.unsubscribe(topic("p"));
        pub.publish(topic("p"), bytes("nobody's"), 1, false);
        pub.publish(topic("r"), bytes("end"), 1, false);
        SEEN.put("unsubscribed", sub.next().text());
    }

    private static void session(Link keeper, Link again, Link pub) throws Exception {
        boolean before = keeper.open(false);
        keeper.subscribe(topic("k"), 1);
        keeper.close();
        for (int n = 0; n < 3; n++) {
            pub.publish(topic("k"), bytes(String.valueOf(n)), 1 + n % 2, false);
        }
        boolean after = again.open(false);
        List<Object> came = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            came.add(again.next().text());
        }
        SEEN.put("session", came);
        SEEN.put("session present", List.of(before, after));
        again.unsubscribe(topic("k"));
        again.close();
    }

    private static void inFive(Link5 sub, Link5 pub) throws Exception {
        sub.subscribe(topic("v"), 1);
        pub.client.publishWith()
                .topic(topic("v"))
                .payload(bytes("x"))
                .qos(MqttQos.AT_LEAST_ONCE)
                .contentType("text/plain")
                .responseTopic("answers/here")
                .correlationData(new byte[] {0, 1, (byte) 0xff})
                .userProperties()
                .add("b", "1")
                .add("a", "2")
                .add("b", "3")
                .add("\u00e9", "\u2603")
                .applyUserProperties()
                .send();
        Mqtt5Publish found = sub.nextPublish();
        List<Object> users = new ArrayList<>();
        found.getUserProperties()
                .asList()
                .forEach(
                        one ->
                                users.add(
                                        List.of(
                                                one.getName().toString(),
                                                one.getValue().toString())));
        SEEN.put(
                "properties",
                List.of(
                        found.getContentType().orElseThrow().toString(),
                        found.getResponseTopic().orElseThrow().toString(),
                        hex(bytes(found.getCorrelationData().orElseThrow())),
                        users));
        pub.client.publishWith()
                .topic(topic("v"))
                .qos(MqttQos.AT_LEAST_ONCE)
                .messageExpiryInterval(60)
                .send();
        long left = sub.nextPublish().getMessageExpiryInterval().orElseThrow();
        SEEN.put("expiry", left == 59 || left == 60);

        Link5 other = new Link5("sub2");
        other.open(true);
        String group = "$share/group/" + topic("s");
        sub.subscribe(group, 1);
        other.subscribe(group, 1);
        for (int n = 0; n < 6; n++) {
            pub.publish(topic("s"), bytes(String.valueOf(n)), 1, false);
        }
        List<String> came = new ArrayList<>();
        while (came.size() < 6) {
            for (Link5 member : List.of(sub, other)) {
                member.publishes
                        .receive(50, TimeUnit.MILLISECONDS)
                        .ifPresent(
                                one ->
                                        came.add(
                                                new String(
                                                        one.getPayloadAsBytes(),
                                                        StandardCharsets.UTF_8)));
            }
        }
        came.sort(null);
        SEEN.put("shared", came);
        other.close();
        sub.unsubscribe(group);

        pub.subscribe(topic("answers"), 1);
        sub.subscribe(topic("questions"), 1);
        pub.client.publishWith()
                .topic(topic("questions"))
                .payload(bytes("question"))
                .qos(MqttQos.AT_LEAST_ONCE)
                .responseTopic(topic("answers"))
                .correlationData(new byte[] {(byte) 0xc0, (byte) 0xff, (byte) 0xee})
                .send();
        Mqtt5Publish question = sub.nextPublish();
        sub.client.publishWith()
                .topic(question.getResponseTopic().orElseThrow())
                .payload(bytes("answer"))
                .qos(MqttQos.AT_LEAST_ONCE)
                .correlationData(question.getCorrelationData().orElseThrow())
                .send();
        Mqtt5Publish answer = pub.nextPublish();
        SEEN.put(
                "request and response",
                List.of(
                        new String(question.getPayloadAsBytes(), StandardCharsets.UTF_8),
                        new String(answer.getPayloadAsBytes(), StandardCharsets.UTF_8),
                        hex(bytes(answer.getCorrelationData().orElseThrow()))));
    }

    private static void will(Link5 sub) throws Exception {
        sub.subscribe(topic("will"), 1);
        Link5 mortal = new Link5("mortal");
        mortal.client.connectWith()
                .willPublish()
                .topic(topic("will"))
                .payload(bytes("gone"))
                .qos(MqttQos.AT_LEAST_ONCE)
                .applyWillPublish()
                .send();
        mortal.client.disconnectWith()
                .reasonCode(Mqtt5DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
                .send();
        SEEN.put("will", sub.next().text());
    }

    private static String json(Object value) {
        if (value instanceof String text) {
            return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
        }
        List<String> parts = new ArrayList<>();
        if (value instanceof List<?> list) {
            list.forEach(one -> parts.add(json(one)));
            return "[" + String.join(",", parts) + "]";
        }
        if (value instanceof Map<?, ?> map) {
            map.forEach((name, one) -> parts.add(json(name) + ":" + json(one)));
            return "{" + String.join(",", parts) + "}";
        }
        return String.valueOf(value);
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        boolean is5 = arguments[1].equals("5");
        stem = arguments[2];
        if (is5) {
            Link5 sub = new Link5("sub");
            Link5 pub = new Link5("pub");
            sub.open(true);
            pub.open(true);
            inAll(sub, pub);
            inFive(sub, pub);
            session(new Link5("keep"), new Link5("keep"), pub);
            will(sub);
        } else {
            Link3 sub = new Link3("sub");
            Link3 pub = new Link3("pub");
            sub.open(true);
            pub.open(true);
            inAll(sub, pub);
            session(new Link3("keep"), new Link3("keep"), pub);
        }
        System.out.write(bytes(json(SEEN) + "\n"));
        System.out.flush();
        System.exit(0);
    }
}
