import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Two rows of logits, mapped by a probmap server: binary tensors over java.net.http, and nothing
 * but the standard library.
 *
 * <pre>java examples/java/Probmap.java [URL] [MAPPING]</pre>
 *
 * The body is that of the Open Inference Protocol: a JSON header that describes the tensors, then
 * their bytes, little-endian.
 */
public class Probmap {
    static final String LENGTH = "Inference-Header-Content-Length";
    static final Duration PATIENCE = Duration.ofSeconds(30);

    /** What the server says when it says no. */
    @SuppressWarnings("serial")
    static class Refused extends IOException {
        Refused(int status, String document) {
            super(detail(document) + " (" + status + ")");
        }

        /** What is wrong and what to do about it: a text of the problem document. */
        static String detail(String document) {
            // Possessive (*+), so that a long text is not tried again and again.
            Pattern text = Pattern.compile("\"detail\":\"((?:[^\"\\\\]++|\\\\.)*+)\"");
            Matcher found = text.matcher(document);
            return found.find() ? found.group(1).replaceAll("\\\\(.)", "$1") : document;
        }
    }

    private final HttpClient client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(PATIENCE)
            .build();
    private final URI server;

    Probmap(URI server) {
        this.server = server;
    }

    /** The probabilities of logits, one row after the other; each row has its own temperature. */
    float[] map(String mapping, float[] logits, float[] temperature)
            throws IOException, InterruptedException {
        int rows = temperature.length;
        byte[] header = """
                {"inputs": [
                  {"name": "logits", "datatype": "FP32", "shape": [%d, %d],
                   "parameters": {"binary_data_size": %d}},
                  {"name": "temperature", "datatype": "FP32", "shape": [%d],
                   "parameters": {"binary_data_size": %d}}],
                 "outputs": [{"name": "probabilities", "parameters": {"binary_data": true}}]}"""
                .formatted(rows, logits.length / rows, 4 * logits.length, rows, 4 * rows)
                .getBytes(StandardCharsets.UTF_8);
        // A buffer is big-endian unless told otherwise.
        ByteBuffer body = ByteBuffer.allocate(header.length + 4 * (logits.length + rows))
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(header);
        body.asFloatBuffer().put(logits).put(temperature);

        URI model = server.resolve("/v2/models/" + mapping + "/infer");
        HttpRequest request = HttpRequest.newBuilder(model)
                .timeout(PATIENCE)
                .header("Content-Type", "application/octet-stream")
                .header(LENGTH, Integer.toString(header.length))
                .POST(BodyPublishers.ofByteArray(body.array()))
                .build();
        HttpResponse<byte[]> response = client.send(request, BodyHandlers.ofByteArray());
        byte[] content = response.body();
        if (response.statusCode() != 200) {
            throw new Refused(response.statusCode(), new String(content, StandardCharsets.UTF_8));
        }
        int start = (int) response.headers().firstValueAsLong(LENGTH).orElse(content.length);
        float[] probabilities = new float[logits.length];
        // One output was asked for, so that its numbers are all that follows the JSON.
        if (content.length - start != 4 * probabilities.length) {
            throw new IOException("the answer has not the numbers that were asked for");
        }
        ByteBuffer tensor = ByteBuffer.wrap(content, start, content.length - start);
        tensor.order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(probabilities);
        return probabilities;
    }

    public static void main(String[] arguments) throws InterruptedException {
        String server = arguments.length > 0 ? arguments[0] : "http://127.0.0.1:8000";
        String mapping = arguments.length > 1 ? arguments[1] : "sparsemax";
        // Minus infinity masks a class, which gets exactly 0.
        float[] logits = {0, 0.5f, 1, 1, Float.NEGATIVE_INFINITY, 3};
        try {
            float[] p = new Probmap(URI.create(server)).map(mapping, logits, new float[] {1, 4});
            for (int at = 0; at < p.length; at += 3) {
                System.out.printf(Locale.ROOT, "%.4f %.4f %.4f%n", p[at], p[at + 1], p[at + 2]);
            }
        } catch (IOException error) {
            // A refused connection has no message of its own.
            String what = error.getMessage();
            System.err.println("probmap: " + (what == null ? "no connection to " + server : what));
            System.exit(1);
        }
    }
}
