import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Requests and answers as JSON, by Kafka's own generated messages, so that nothing of ours judges
 * ours.
 *
 * A line of standard input: {"id", "address", "connection", "api", "version", "body"}. A line of
 * standard output for each: {"id", "answer"} or {"id", "closed": why}. What goes over one
 * connection is answered in its order; connections do not wait for one another.
 */
final class Wire {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int ANSWER_MILLIS_MAX = 60_000;

    private static Object convert(String message, String method, Class<?>[] types, Object... values)
            throws Exception {
        Class<?> converter =
            Class.forName("org.apache.kafka.common.message." + message + "DataJsonConverter");
        try {
            return converter.getMethod(method, types).invoke(null, values);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    /** One connection, and the requests that wait for it. */
    private static final class Line extends Thread {
        private final LinkedBlockingQueue<JsonNode> waiting = new LinkedBlockingQueue<>();
        private final String address;
        private Socket socket;
        private int correlation;

        Line(String address) {
            this.address = address;
            setDaemon(true);
        }

        @Override
        public void run() {
            while (true) {
                ObjectNode told = JSON.createObjectNode();
                try {
                    JsonNode asked = waiting.take();
                    told.set("id", asked.get("id"));
                    told.set("answer", ask(asked));
                } catch (Exception error) {
                    told.put("closed", error.toString());
                    socket = null;
                }
                synchronized (System.out) {
                    System.out.println(told);
                    System.out.flush();
                }
            }
        }

        private JsonNode ask(JsonNode asked) throws Exception {
            if (socket == null) {
                String[] parts = address.split(":");
                socket = new Socket(parts[0], Integer.parseInt(parts[1]));
                socket.setTcpNoDelay(true);
                socket.setSoTimeout(ANSWER_MILLIS_MAX);
            }
            String name = asked.get("api").asText();
            short version = (short) asked.get("version").asInt();
            ApiMessageType type = null;
            for (ApiMessageType one : ApiMessageType.values()) {
                if (one.name.equals(name)) type = one;
            }
            if (type == null) throw new IllegalArgumentException("no api is called " + name);
            ApiMessage request = (ApiMessage) convert(name + "Request", "read",
                new Class<?>[] {JsonNode.class, short.class}, asked.get("body"), version);
            correlation += 1;
            RequestHeaderData header = new RequestHeaderData().setRequestApiKey(type.apiKey())
                .setRequestApiVersion(version).setCorrelationId(correlation)
                .setClientId("differential");
            short headed = type.requestHeaderVersion(version);
            ByteBuffer head = MessageUtil.toByteBufferAccessor(header, headed).buffer();
            ByteBuffer body = MessageUtil.toByteBufferAccessor(request, version).buffer();
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            byte[] frame = new byte[4 + head.remaining() + body.remaining()];
            ByteBuffer.wrap(frame).putInt(frame.length - 4).put(head).put(body);
            out.write(frame);
            out.flush();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            ByteBufferAccessor bytes = new ByteBufferAccessor(ByteBuffer.wrap(answer));
            ResponseHeaderData answered =
                new ResponseHeaderData(bytes, type.responseHeaderVersion(version));
            if (answered.correlationId() != correlation) {
                throw new IllegalStateException("an answer to " + answered.correlationId());
            }
            ApiMessage response = type.newResponse();
            response.read(bytes, version);
            if (bytes.remaining() > 0) {
                throw new IllegalStateException(bytes.remaining() + " bytes too many");
            }
            JsonNode told = (JsonNode) convert(name + "Response", "write",
                new Class<?>[] {response.getClass(), short.class}, response, version);
            if (response instanceof FetchResponseData fetched) tellRecords(fetched, told);
            return told;
        }

        /** Kafka's converters leave records out. */
        private static void tellRecords(FetchResponseData fetched, JsonNode told) {
            for (int i = 0; i < fetched.responses().size(); i += 1) {
                var rows = fetched.responses().get(i).partitions();
                for (int j = 0; j < rows.size(); j += 1) {
                    if (!(rows.get(j).records() instanceof MemoryRecords records)) continue;
                    ByteBuffer buffer = records.buffer().duplicate();
                    byte[] copy = new byte[buffer.remaining()];
                    buffer.get(copy);
                    JsonNode row = told.get("responses").get(i).get("partitions").get(j);
                    ((ObjectNode) row).put("records", copy);
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Line> lines = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            JsonNode asked = JSON.readTree(text);
            String address = asked.get("address").asText();
            String key = address + " " + asked.get("connection").asText();
            lines.computeIfAbsent(key, it -> {
                Line line = new Line(address);
                line.start();
                return line;
            }).waiting.add(asked);
        }
    }
}
