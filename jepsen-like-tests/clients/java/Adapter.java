// The Java client, Kafka's own, behind the adapter protocol of jepsen-like-tests/clients/README.md.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Adapter {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        JsonNode p = JSON.readTree(arguments[1]);
        switch (arguments[0]) {
            case "produce" -> produce(p);
            case "consume" -> consume(p);
            case "lookup" -> lookup(p);
            case "group" -> group(p);
            case "transact" -> transact(p);
            case "admin" -> admin(p);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        OUT.flush();
        System.exit(0);
    }

    static KafkaProducer<byte[], byte[]> transactional(JsonNode p) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", p.get("bootstrap").asText());
        properties.put("transactional.id", p.get("id").asText());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            properties, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    static KafkaConsumer<byte[], byte[]> committed(JsonNode p, String group, String topic) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", p.get("bootstrap").asText());
        properties.put("group.id", group);
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static void transact(JsonNode p) {
        String topic = p.get("topic").asText();
        String out = p.get("out").asText();
        String group = p.get("group").asText();
        KafkaProducer<byte[], byte[]> first = transactional(p);
        for (int number = 0; number < 6; number++) {
            first.beginTransaction();
            for (int i = 0; i < 10; i++) {
                first.send(new ProducerRecord<>(topic, (number + "-" + i).getBytes()));
            }
            if (number % 3 == 2) {
                first.flush();
                first.abortTransaction();
            } else {
                first.commitTransaction();
            }
        }
        KafkaConsumer<byte[], byte[]> consumer = committed(p, group, topic);
        int copied = 0;
        long quiet = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < quiet) {
            var records = consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) {
                continue;
            }
            first.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> r : records) {
                first.send(new ProducerRecord<>(out, r.value()));
                print(JSON.createObjectNode().put("v", text(r.value())));
                copied++;
            }
            first.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
            first.commitTransaction();
            if (copied >= 40) {
                quiet = System.currentTimeMillis() + 2000;
            }
        }
        consumer.close();
        KafkaProducer<byte[], byte[]> second = transactional(p);
        try {
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "zombie".getBytes()));
            first.commitTransaction();
            print(JSON.createObjectNode().put("zombie", "it committed"));
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            print(JSON.createObjectNode().put("zombie", "fenced"));
        }
        KafkaConsumer<byte[], byte[]> reader = committed(p, group + "-out", out);
        int found = 0;
        quiet = System.currentTimeMillis() + 30_000;
        while (System.currentTimeMillis() < quiet) {
            for (ConsumerRecord<byte[], byte[]> r : reader.poll(Duration.ofMillis(500))) {
                print(JSON.createObjectNode().put("out", text(r.value())));
                found++;
            }
            if (found >= 40) {
                quiet = Math.min(quiet, System.currentTimeMillis() + 1000);
            }
        }
        reader.close();
        second.close();
    }

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static void print(ObjectNode line) {
        OUT.println(line);
        OUT.flush();
    }

    static Properties consumerProperties(JsonNode p) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", p.get("bootstrap").asText());
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        return properties;
    }

    static void produce(JsonNode p) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", p.get("bootstrap").asText());
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("compression.type", p.get("codec").asText());
        properties.put("acks", p.get("acks").asText());
        properties.put("enable.idempotence", p.path("idempotent").asBoolean(false));
        properties.put("max.request.size", p.path("max_bytes").asInt(1048576));
        properties.put("linger.ms", 50);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
                BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line; (line = in.readLine()) != null; ) {
                JsonNode r = JSON.readTree(line);
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(
                                p.get("topic").asText(),
                                r.get("p").asInt(),
                                r.get("t").asLong(),
                                bytes(r.get("k")),
                                bytes(r.get("v")));
                for (JsonNode h : r.get("h")) {
                    record.headers().add(h.get(0).asText(), bytes(h.get(1)));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                try {
                    RecordMetadata m = one.get();
                    print(JSON.createObjectNode().put("p", m.partition()).put("o", m.offset()));
                } catch (ExecutionException error) {
                    print(JSON.createObjectNode().put("error", error.getCause().toString()));
                }
            }
        }
    }

    static void consume(JsonNode p) throws Exception {
        try (var consumer = new KafkaConsumer<byte[], byte[]>(consumerProperties(p))) {
            List<TopicPartition> all = new ArrayList<>();
            for (JsonNode topic : p.get("topics")) {
                consumer.partitionsFor(topic.asText())
                        .forEach(i -> all.add(new TopicPartition(i.topic(), i.partition())));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(t -> consumer.position(t) < ends.get(t))) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    ObjectNode line = JSON.createObjectNode();
                    line.put("topic", r.topic()).put("p", r.partition()).put("o", r.offset());
                    line.put("k", text(r.key())).put("v", text(r.value()));
                    ArrayNode headers = line.putArray("h");
                    for (Header h : r.headers()) {
                        headers.addArray().add(h.key()).add(text(h.value()));
                    }
                    print(line.put("t", r.timestamp()));
                }
            }
        }
    }

    static void lookup(JsonNode p) {
        try (var consumer = new KafkaConsumer<byte[], byte[]>(consumerProperties(p))) {
            TopicPartition t = new TopicPartition(p.get("topic").asText(), 0);
            for (JsonNode time : p.get("times")) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(t, time.asLong())).get(t);
                print(JSON.createObjectNode()
                        .put("t", time.asLong())
                        .put("o", found == null ? -1 : found.offset()));
            }
        }
    }

    /** Members live in one process, polled in turn: a rebalance needs all of them to poll. */
    static void group(JsonNode p) throws Exception {
        Properties properties = consumerProperties(p);
        properties.put("group.id", p.get("group").asText());
        if (p.has("protocol")) {
            properties.put("group.protocol", p.get("protocol").asText());
        }
        int count = p.get("count").asInt();
        List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();
        for (int i = 0; i < p.get("members").asInt(); i++) {
            var member = new KafkaConsumer<byte[], byte[]>(properties);
            member.subscribe(List.of(p.get("topic").asText()));
            members.add(member);
        }
        boolean ready = false;
        int seen = 0;
        long deadline = System.currentTimeMillis() + 90_000;
        long quiet = Long.MAX_VALUE;
        while (System.currentTimeMillis() < Math.min(deadline, quiet)) {
            for (int i = 0; i < members.size(); i++) {
                for (var r : members.get(i).poll(Duration.ofMillis(50))) {
                    seen += 1;
                    print(JSON.createObjectNode()
                            .put("member", i).put("p", r.partition()).put("o", r.offset()));
                }
            }
            if (!ready && members.stream().noneMatch(m -> m.assignment().isEmpty())) {
                ready = true;
                print(JSON.createObjectNode().put("ready", true));
            }
            if (seen >= count && quiet == Long.MAX_VALUE) {
                quiet = System.currentTimeMillis() + 500;
            }
        }
        for (var member : members) {
            member.commitSync();
            member.close();
        }
    }

    interface Step {
        boolean run() throws Exception;
    }

    static void step(String operation, Step step) {
        ObjectNode line = JSON.createObjectNode().put("op", operation);
        try {
            print(line.put("ok", step.run()));
        } catch (Exception error) {
            print(line.put("ok", false).put("why", error.toString()));
        }
    }

    static void admin(JsonNode p) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", p.get("bootstrap").asText());
        String topic = p.get("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(properties)) {
            step("create", () -> {
                NewTopic wanted = new NewTopic(topic, 3, (short) 1);
                admin.createTopics(Set.of(wanted.configs(Map.of("retention.ms", "86400000"))))
                        .all().get();
                return true;
            });
            step("create again", () -> {
                try {
                    admin.createTopics(Set.of(new NewTopic(topic, 3, (short) 1))).all().get();
                    return false;
                } catch (ExecutionException error) {
                    return error.getCause().toString().contains("TopicExists");
                }
            });
            step("list", () -> admin.listTopics().names().get().contains(topic));
            step("describe", () -> partitions(admin, topic) == 3);
            step("cluster", () -> admin.describeCluster().nodes().get().size() == 1);
            step("config", () -> config(admin, resource, "retention.ms").equals("86400000"));
            step("alter config", () -> {
                AlterConfigOp set = new AlterConfigOp(
                        new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource, (Collection<AlterConfigOp>) List.of(set)))
                        .all().get();
                return config(admin, resource, "retention.ms").equals("3600000");
            });
            step("bad config", () -> {
                AlterConfigOp set = new AlterConfigOp(
                        new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
                try {
                    admin.incrementalAlterConfigs(
                            Map.of(resource, (Collection<AlterConfigOp>) List.of(set))).all().get();
                    return false;
                } catch (ExecutionException error) {
                    return error.getCause().toString().contains("InvalidConfiguration");
                }
            });
            step("add partitions", () -> {
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
                return partitions(admin, topic) == 5;
            });
            step("delete records", () -> {
                properties.put("key.serializer", ByteArraySerializer.class.getName());
                properties.put("value.serializer", ByteArraySerializer.class.getName());
                try (var producer = new KafkaProducer<byte[], byte[]>(properties)) {
                    for (int i = 0; i < 5; i++) {
                        producer.send(new ProducerRecord<>(topic, 0, null, new byte[] {1})).get();
                    }
                }
                long low = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(3)))
                        .lowWatermarks().get(first).get().lowWatermark();
                return low == 3
                        && offset(admin, first, OffsetSpec.earliest()) == 3
                        && offset(admin, first, OffsetSpec.latest()) == 5;
            });
            step("log directories", () -> admin.describeLogDirs(List.of(
                    admin.describeCluster().nodes().get().iterator().next().id()))
                    .allDescriptions().get().values().iterator().next().values().stream()
                    .anyMatch(d -> d.replicaInfos().containsKey(first)));
            step("delete", () -> {
                admin.deleteTopics(Set.of(topic)).all().get();
                return true;
            });
            step("gone", () -> {
                for (int i = 0; i < 20; i++) {
                    if (!admin.listTopics().names().get().contains(topic)) {
                        return true;
                    }
                    Thread.sleep(100);
                }
                return false;
            });
        }
    }

    static int partitions(Admin admin, String topic) throws Exception {
        int count = 0;
        for (int i = 0; i < 20; i++) { // A change of metadata may take a moment to be seen.
            count = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic)
                    .partitions().size();
            Thread.sleep(50);
        }
        return count;
    }

    static String config(Admin admin, ConfigResource resource, String name) throws Exception {
        Thread.sleep(200);
        return admin.describeConfigs(Set.of(resource)).all().get().get(resource).get(name).value();
    }

    static long offset(Admin admin, TopicPartition t, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(t, spec)).partitionResult(t).get().offset();
    }
}
