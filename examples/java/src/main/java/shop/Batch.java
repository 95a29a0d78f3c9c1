package shop;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.IntStream;
import shop.Delivery.Outcome;

/** One batch: claimed, delivered and reported. The connection commits each statement by itself. */
final class Batch {
    private static final String CLAIM = """
            SELECT array_agg(outbox_id), array_agg(lease_token), array_agg(event_id),
                array_agg(payload::text) FROM outbox.claim(?, 20, '30 s')""";
    private static final String COMPLETE = """
            SELECT outbox_id, error FROM outbox.complete_batch(?, ?, ?, ?, error_codes => ?)
            WHERE error IS NOT NULL""";

    /** Returns false if there was nothing to claim. */
    static boolean work(Connection db, String me) throws SQLException {
        try (PreparedStatement claim = db.prepareStatement(CLAIM);
                PreparedStatement complete = db.prepareStatement(COMPLETE)) {
            claim.setString(1, me);
            ResultSet batch = claim.executeQuery();
            batch.next();
            if (batch.getArray(1) == null) {
                return false;
            }
            UUID[] events = (UUID[]) batch.getArray(3).getArray();
            String[] payloads = (String[]) batch.getArray(4).getArray();
            // Side by side, each with a time limit: together they end well within the lease.
            List<CompletableFuture<Outcome>> deliveries = IntStream.range(0, events.length)
                    .mapToObj(i -> Delivery.deliver(events[i], payloads[i])).toList();
            List<Outcome> outcomes = deliveries.stream().map(CompletableFuture::join).toList();
            complete.setString(1, me);
            complete.setArray(2, batch.getArray(1));
            complete.setArray(3, batch.getArray(2));
            complete.setObject(4, texts(outcomes, Outcome::state));
            complete.setObject(5, texts(outcomes, Outcome::errorCode));
            ResultSet lost = complete.executeQuery();
            while (lost.next()) { // P7002: another worker has the message
                System.err.println("not recorded: " + lost.getString(1) + " " + lost.getString(2));
            }
            return true;
        }
    }

    private static String[] texts(List<Outcome> outcomes, Function<Outcome, String> part) {
        return outcomes.stream().map(part).toArray(String[]::new);
    }

    private Batch() {}
}
