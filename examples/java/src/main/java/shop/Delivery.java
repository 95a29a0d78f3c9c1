package shop;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/**
 * POSTs messages to RECEIVER_URL. Replace it by what your messages are for.
 * The receiver knows a second delivery by the Idempotency-Key, and takes no effect twice.
 */
final class Delivery {
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    private static final String RECEIVER = System.getenv("RECEIVER_URL");

    record Outcome(String state, String errorCode) {}

    /** A worker without a receiver ends before it claims. */
    static void requireReceiver() {
        Objects.requireNonNull(RECEIVER, "RECEIVER_URL");
    }

    static CompletableFuture<Outcome> deliver(UUID eventId, String payload) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(RECEIVER))
                .timeout(Duration.ofSeconds(5))
                .header("Content-Type", "application/json")
                .header("Idempotency-Key", eventId.toString())
                .POST(BodyPublishers.ofString(payload))
                .build();
        return HTTP.sendAsync(request, BodyHandlers.discarding())
                .thenApply(response -> outcome(response.statusCode()))
                // Refused, too slow, broken off: it may have arrived.
                .exceptionally(failure -> new Outcome("RETRYABLE", "NO_ANSWER"));
    }

    private static Outcome outcome(int status) {
        return switch (status) {
            case 200, 201, 202, 204 -> new Outcome("DISPATCHED", null);
            case 400, 422 -> new Outcome("FAILED", "HTTP_" + status);
            default -> new Outcome("RETRYABLE", "HTTP_" + status);
        };
    }

    private Delivery() {}
}
