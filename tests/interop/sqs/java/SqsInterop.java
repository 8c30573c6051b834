import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.retries.DefaultRetryStrategy;
import software.amazon.awssdk.retries.api.RetryStrategy;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.BatchResultErrorEntry;
import software.amazon.awssdk.services.sqs.model.ChangeMessageVisibilityBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.DeleteMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.ReceiveMessageRequest;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.SendMessageRequest;
import software.amazon.awssdk.services.sqs.model.SendMessageResponse;
import software.amazon.awssdk.services.sqs.model.SqsException;

/**
 * The SDK for Java through the steps of scenario.py: SqsInterop url region key secret stem.
 *
 * <p>Prints what it saw as one JSON object. The SDK compares the digests of bodies and attributes
 * itself: a wrong one is an exception.
 */
public final class SqsInterop {
    private static final long COME_MS_MAX = 15_000;
    private static final long AT_ONCE_MS_MAX = 5_000;
    private static final int MIB = 1 << 20;
    private static final String UNICODE =
            "\t\n\r \u00e9\u2603\ud83d\ude00 <&>\"' \ufffd \ue000 end";
    private static final Map<String, MessageAttributeValue> ATTRIBUTES = attributes();

    private static SqsClient client;

    /** One step: the name of its queue in, what was seen out. */
    private interface Step {
        Object run(String name) throws Exception;
    }

    private static Map<String, MessageAttributeValue> attributes() {
        byte[] bytes = new byte[256];
        for (int n = 0; n < bytes.length; n++) {
            bytes[n] = (byte) n;
        }
        Map<String, MessageAttributeValue> out = new HashMap<>();
        out.put("text", text("String", "\u00e9\u2603 text"));
        out.put("number", text("Number", "-1.5e10"));
        out.put("bytes", bytes("Binary", bytes));
        out.put("custom.text", text("String.uuid", "f81d4fae"));
        out.put("custom.number", text("Number.int", "7"));
        out.put("custom.bytes", bytes("Binary.png", new byte[] {(byte) 0x89, 'P', 'N', 'G'}));
        return out;
    }

    private static MessageAttributeValue text(String type, String value) {
        return MessageAttributeValue.builder().dataType(type).stringValue(value).build();
    }

    private static MessageAttributeValue bytes(String type, byte[] value) {
        SdkBytes bytes = SdkBytes.fromByteArray(value);
        return MessageAttributeValue.builder().dataType(type).binaryValue(bytes).build();
    }

    private static String made(String name, Map<String, String> attributes) {
        return client.createQueue(r -> r.queueName(name).attributesWithStrings(attributes))
                .queueUrl();
    }

    private static String attribute(String url, QueueAttributeName name) {
        return client.getQueueAttributes(r -> r.queueUrl(url).attributeNames(name))
                .attributes()
                .get(name);
    }

    private static SendMessageResponse send(
            String url, String body, Consumer<SendMessageRequest.Builder> more) {
        return client.sendMessage(
                r -> {
                    r.queueUrl(url).messageBody(body);
                    more.accept(r);
                });
    }

    private static List<Message> look(String url, Consumer<ReceiveMessageRequest.Builder> more) {
        return client.receiveMessage(
                        r -> {
                            r.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(0);
                            r.messageSystemAttributeNames(MessageSystemAttributeName.ALL);
                            r.messageAttributeNames("All");
                            more.accept(r);
                        })
                .messages();
    }

    private static List<Message> look(String url) {
        return look(url, r -> {});
    }

    private static List<Message> take(
            String url, int count, Consumer<ReceiveMessageRequest.Builder> more) {
        long deadline = System.currentTimeMillis() + COME_MS_MAX;
        List<Message> came = new ArrayList<>();
        while (came.size() < count && System.currentTimeMillis() < deadline) {
            int wanted = Math.min(10, count - came.size());
            came.addAll(
                    look(
                            url,
                            r -> {
                                r.maxNumberOfMessages(wanted).waitTimeSeconds(2);
                                more.accept(r);
                            }));
        }
        if (came.size() != count) {
            throw new IllegalStateException(came.size() + " of " + count + " messages came");
        }
        return came;
    }

    private static List<Message> take(String url, int count) {
        return take(url, count, r -> {});
    }

    private static void delete(String url, Collection<Message> messages) {
        for (Message one : messages) {
            client.deleteMessage(r -> r.queueUrl(url).receiptHandle(one.receiptHandle()));
        }
    }

    private static void release(String url, Message message) {
        client.changeMessageVisibility(
                r ->
                        r.queueUrl(url)
                                .receiptHandle(message.receiptHandle())
                                .visibilityTimeout(0));
    }

    private static List<String> bodies(Collection<Message> messages) {
        return messages.stream().map(Message::body).toList();
    }

    private static List<Integer> counts(String url) {
        return Stream.of(
                        QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES,
                        QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE,
                        QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_DELAYED)
                .map(name -> Integer.valueOf(attribute(url, name)))
                .toList();
    }

    private static String refused(Runnable request) {
        try {
            request.run();
        } catch (SqsException error) {
            String code = error.awsErrorDetails().errorCode();
            return code.replace("AWS.SimpleQueueService.", "");
        }
        return "accepted";
    }

    private static String md5(byte[] data) throws Exception {
        StringBuilder out = new StringBuilder();
        for (byte one : MessageDigest.getInstance("MD5").digest(data)) {
            out.append(String.format("%02x", one));
        }
        return out.toString();
    }

    private static void sized(MessageDigest digest, byte[] data) {
        digest.update(ByteBuffer.allocate(4).putInt(data.length).array());
        digest.update(data);
    }

    private static String attributesMd5(Map<String, MessageAttributeValue> attributes)
            throws Exception {
        MessageDigest digest = MessageDigest.getInstance("MD5");
        for (var entry : new TreeMap<>(attributes).entrySet()) {
            MessageAttributeValue value = entry.getValue();
            boolean isBinary = value.dataType().startsWith("Binary");
            sized(digest, entry.getKey().getBytes(StandardCharsets.UTF_8));
            sized(digest, value.dataType().getBytes(StandardCharsets.UTF_8));
            digest.update((byte) (isBinary ? 2 : 1));
            sized(
                    digest,
                    isBinary
                            ? value.binaryValue().asByteArray()
                            : value.stringValue().getBytes(StandardCharsets.UTF_8));
        }
        StringBuilder out = new StringBuilder();
        for (byte one : digest.digest()) {
            out.append(String.format("%02x", one));
        }
        return out.toString();
    }

    private static List<Object> standard(String name) throws Exception {
        String url = made(name, Map.of());
        String found = client.getQueueUrl(r -> r.queueName(name)).queueUrl();
        SendMessageResponse sent = send(url, UNICODE, r -> {});
        List<Message> came = take(url, 1);
        Message message = came.get(0);
        String right = md5(UNICODE.getBytes(StandardCharsets.UTF_8));
        delete(url, came);
        return List.of(
                found.equals(url),
                message.body().equals(UNICODE),
                message.messageId().equals(sent.messageId()),
                sent.md5OfMessageBody().equals(right) && message.md5OfBody().equals(right),
                bodies(look(url)),
                counts(url));
    }

    private static List<Object> longPolling(String name) throws Exception {
        String url = made(name, Map.of());
        long best = Long.MAX_VALUE;
        for (int round = 0; round < 4; round++) {
            CompletableFuture<List<Message>> waiting =
                    CompletableFuture.supplyAsync(() -> look(url, r -> r.waitTimeSeconds(20)));
            for (int n = 0; n < 5; n++) {
                attribute(url, QueueAttributeName.QUEUE_ARN);
            }
            long began = System.nanoTime();
            send(url, "wakes", r -> {});
            List<Message> came = waiting.get();
            best = Math.min(best, (System.nanoTime() - began) / 1_000_000);
            delete(url, came);
        }
        long began = System.nanoTime();
        boolean isEmpty = look(url, r -> r.waitTimeSeconds(1)).isEmpty();
        long waited = (System.nanoTime() - began) / 1_000_000;
        return List.of(best < AT_ONCE_MS_MAX, isEmpty, waited > 900 && waited < 20_000);
    }

    private static List<Object> visibility(String name) {
        String url = made(name, Map.of());
        send(url, "one", r -> {});
        Message first = take(url, 1, r -> r.visibilityTimeout(60)).get(0);
        List<String> hidden = bodies(look(url));
        List<Integer> inFlight = counts(url);
        release(url, first);
        Message again = take(url, 1, r -> r.visibilityTimeout(60)).get(0);
        List<Integer> received =
                Stream.of(first, again)
                        .map(one -> one.attributes())
                        .map(
                                one ->
                                        one.get(
                                                MessageSystemAttributeName
                                                        .APPROXIMATE_RECEIVE_COUNT))
                        .map(Integer::valueOf)
                        .toList();
        delete(url, List.of(again));
        boolean isNew = !again.receiptHandle().equals(first.receiptHandle());
        return List.of(hidden, inFlight, received, isNew, counts(url));
    }

    private static List<Object> deadLetters(String name) {
        String dead = made(name + "-dead", Map.of());
        String arn = attribute(dead, QueueAttributeName.QUEUE_ARN);
        String policy =
                "{\"deadLetterTargetArn\":\"" + arn + "\",\"maxReceiveCount\":\"2\"}";
        String url = made(name, Map.of("RedrivePolicy", policy));
        SendMessageResponse sent = send(url, "dies", r -> r.messageAttributes(ATTRIBUTES));
        for (int n = 0; n < 2; n++) {
            release(url, take(url, 1).get(0));
        }
        if (!look(url).isEmpty()) {
            throw new IllegalStateException("it is not dead");
        }
        Message letter = take(dead, 1).get(0);
        String source =
                letter.attributes().get(MessageSystemAttributeName.DEAD_LETTER_QUEUE_SOURCE_ARN);
        return List.of(
                letter.body(),
                letter.messageId().equals(sent.messageId()),
                letter.messageAttributes().equals(ATTRIBUTES),
                attribute(url, QueueAttributeName.QUEUE_ARN).equals(source),
                client.listDeadLetterSourceQueues(r -> r.queueUrl(dead))
                        .queueUrls()
                        .equals(List.of(url)),
                counts(url));
    }

    private static List<Object> outcome(
            Stream<String> successful, List<BatchResultErrorEntry> failed) {
        return List.of(
                successful.sorted().toList(),
                failed.stream()
                        .map(one -> List.<Object>of(one.id(), one.code(), one.senderFault()))
                        .sorted((a, b) -> a.get(0).toString().compareTo(b.get(0).toString()))
                        .toList());
    }

    private static List<Object> batches(String name) {
        String url = made(name, Map.of());
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        for (int n = 0; n < 8; n++) {
            String body = String.valueOf(n);
            entries.add(entry("e" + n, body).build());
        }
        entries.add(entry("delayed", "d").delaySeconds(901).build());
        entries.add(entry("illegal", "\ufffe").build());
        var sent = client.sendMessageBatch(r -> r.queueUrl(url).entries(entries));
        List<Message> came = take(url, 8);
        List<String> handles =
                Stream.concat(came.stream().map(Message::receiptHandle), Stream.of("forged"))
                        .toList();
        List<ChangeMessageVisibilityBatchRequestEntry> changes = new ArrayList<>();
        for (String handle : List.of(handles.get(0), handles.get(1), "forged")) {
            String id = "c" + changes.size();
            changes.add(
                    ChangeMessageVisibilityBatchRequestEntry.builder()
                            .id(id)
                            .receiptHandle(handle)
                            .visibilityTimeout(60)
                            .build());
        }
        var changed = client.changeMessageVisibilityBatch(r -> r.queueUrl(url).entries(changes));
        List<DeleteMessageBatchRequestEntry> deletes = new ArrayList<>();
        for (String handle : handles) {
            String id = "d" + deletes.size();
            deletes.add(
                    DeleteMessageBatchRequestEntry.builder().id(id).receiptHandle(handle).build());
        }
        var deleted = client.deleteMessageBatch(r -> r.queueUrl(url).entries(deletes));
        return List.of(
                outcome(sent.successful().stream().map(one -> one.id()), sent.failed()),
                outcome(changed.successful().stream().map(one -> one.id()), changed.failed()),
                outcome(deleted.successful().stream().map(one -> one.id()), deleted.failed()),
                bodies(came).stream().sorted().toList(),
                counts(url));
    }

    private static SendMessageBatchRequestEntry.Builder entry(String id, String body) {
        return SendMessageBatchRequestEntry.builder().id(id).messageBody(body);
    }

    private static List<Object> messageAttributes(String name) throws Exception {
        String url = made(name, Map.of());
        SendMessageResponse sent = send(url, "x", r -> r.messageAttributes(ATTRIBUTES));
        Message every = take(url, 1, r -> r.visibilityTimeout(0)).get(0);
        Message some =
                take(
                                url,
                                1,
                                r ->
                                        r.visibilityTimeout(0)
                                                .messageAttributeNames("custom.*", "text"))
                        .get(0);
        Message bare =
                client.receiveMessage(r -> r.queueUrl(url).visibilityTimeout(0))
                        .messages()
                        .get(0);
        Map<String, Object> members = new TreeMap<>();
        members.put("Body", bare.body());
        members.put("MD5OfBody", bare.md5OfBody());
        members.put("MessageId", bare.messageId());
        members.put("ReceiptHandle", bare.receiptHandle());
        if (bare.hasAttributes() || bare.hasMessageAttributes()) {
            members.put("more", bare.toString());
        }
        String right = attributesMd5(ATTRIBUTES);
        return List.of(
                right.equals(sent.md5OfMessageAttributes()),
                every.messageAttributes().equals(ATTRIBUTES),
                right.equals(every.md5OfMessageAttributes()),
                List.copyOf(new TreeSet<>(some.messageAttributes().keySet())),
                attributesMd5(some.messageAttributes()).equals(some.md5OfMessageAttributes()),
                List.copyOf(members.keySet()));
    }

    private static List<Object> oneMebibyte(String name) {
        String url = made(name, Map.of());
        String large = "x".repeat(MIB);
        send(url, large, r -> {});
        List<Message> came = take(url, 1);
        delete(url, came);
        String half = large.substring(MIB / 2);
        int both =
                client.sendMessageBatch(
                                r ->
                                        r.queueUrl(url)
                                                .entries(
                                                        entry("h0", half).build(),
                                                        entry("h1", half).build()))
                        .successful()
                        .size();
        return List.of(
                came.get(0).body().equals(large),
                both,
                refused(() -> send(url, large + "+", r -> {})),
                refused(
                        () ->
                                client.sendMessageBatch(
                                        r ->
                                                r.queueUrl(url)
                                                        .entries(
                                                                entry("h0", half).build(),
                                                                entry("h1", half + "+")
                                                                        .build()))));
    }

    private static List<Object> tags(String name) {
        String url =
                client.createQueue(r -> r.queueName(name).tags(Map.of("a", "1", "b", "2")))
                        .queueUrl();
        List<Object> seen = new ArrayList<>();
        seen.add(client.listQueueTags(r -> r.queueUrl(url)).tags());
        client.tagQueue(r -> r.queueUrl(url).tags(Map.of("b", "3", "c", "\u00e9")));
        seen.add(client.listQueueTags(r -> r.queueUrl(url)).tags());
        client.untagQueue(r -> r.queueUrl(url).tagKeys("a", "c", "none"));
        seen.add(client.listQueueTags(r -> r.queueUrl(url)).tags());
        return seen;
    }

    private static SendMessageResponse put(String url, String group, String body, String id) {
        return send(url, body, r -> r.messageGroupId(group).messageDeduplicationId(id));
    }

    private static List<Object> fifo(String name) {
        String url = made(name + ".fifo", Map.of("FifoQueue", "true"));
        List<String> numbers = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            for (String group : List.of("a", "b")) {
                SendMessageResponse sent =
                        put(url, group, String.valueOf(n), group + "-" + n);
                numbers.add(sent.sequenceNumber());
            }
        }
        List<Message> first = look(url, r -> r.maxNumberOfMessages(1));
        List<Message> others = take(url, 3);
        List<String> locked = bodies(look(url));
        delete(url, first);
        List<Message> rest = take(url, 2);
        delete(url, others);
        delete(url, rest);
        var found = first.get(0).attributes();
        return List.of(
                List.copyOf(new TreeSet<>(numbers)).equals(numbers),
                bodies(first),
                bodies(others),
                locked,
                bodies(rest),
                List.of(
                        found.get(MessageSystemAttributeName.MESSAGE_GROUP_ID),
                        found.get(MessageSystemAttributeName.MESSAGE_DEDUPLICATION_ID)),
                found.get(MessageSystemAttributeName.SEQUENCE_NUMBER).equals(numbers.get(0)),
                counts(url));
    }

    private static List<Object> deduplication(String name) {
        String url = made(name + ".fifo", Map.of("FifoQueue", "true"));
        List<SendMessageResponse> sent = new ArrayList<>();
        sent.add(put(url, "g", "one", "same"));
        sent.add(put(url, "g", "two", "same"));
        List<Message> came = take(url, 1);
        delete(url, came);
        sent.add(put(url, "g", "three", "same"));
        put(url, "g", "four", "other");
        return List.of(
                came.get(0).body(),
                sent.stream()
                        .map(SendMessageResponse::messageId)
                        .collect(Collectors.toCollection(HashSet::new))
                        .size(),
                sent.stream()
                        .map(SendMessageResponse::sequenceNumber)
                        .collect(Collectors.toCollection(HashSet::new))
                        .size(),
                bodies(take(url, 1)));
    }

    private static List<Object> deletedQueue(String name) {
        String url = made(name, Map.of());
        client.deleteQueue(r -> r.queueUrl(url));
        return List.of(
                refused(() -> send(url, "x", r -> {})),
                refused(() -> client.getQueueUrl(r -> r.queueName(name))),
                refused(() -> made(name, Map.of())));
    }

    static String json(Object value) {
        if (value instanceof String text) {
            return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
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

    static SqsClient clientOf(String[] arguments, RetryStrategy retries) {
        return SqsClient.builder()
                .endpointOverride(URI.create(arguments[0]))
                .region(Region.of(arguments[1]))
                .credentialsProvider(
                        StaticCredentialsProvider.create(
                                AwsBasicCredentials.create(arguments[2], arguments[3])))
                .overrideConfiguration(o -> o.retryStrategy(retries))
                .build();
    }

    static void print(Map<String, Object> seen) {
        byte[] line = (json(seen) + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
    }

    public static void main(String[] arguments) {
        client = clientOf(arguments, DefaultRetryStrategy.doNotRetry());
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("standard", SqsInterop::standard);
        steps.put("long polling", SqsInterop::longPolling);
        steps.put("visibility", SqsInterop::visibility);
        steps.put("dead letters", SqsInterop::deadLetters);
        steps.put("batches", SqsInterop::batches);
        steps.put("message attributes", SqsInterop::messageAttributes);
        steps.put("one mebibyte", SqsInterop::oneMebibyte);
        steps.put("tags", SqsInterop::tags);
        steps.put("fifo", SqsInterop::fifo);
        steps.put("deduplication", SqsInterop::deduplication);
        steps.put("deleted queue", SqsInterop::deletedQueue);
        Map<String, Object> seen = new LinkedHashMap<>();
        steps.forEach(
                (name, step) -> {
                    try {
                        String queue = arguments[4] + "-" + name.replace(' ', '-');
                        seen.put(name, step.run(queue));
                    } catch (Exception error) {
                        seen.put(name, error.toString());
                    }
                });
        print(seen);
        System.exit(0);
    }
}
