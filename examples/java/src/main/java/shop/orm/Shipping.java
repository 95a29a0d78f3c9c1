package shop.orm;

import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.Query;
import jakarta.persistence.Tuple;
import java.util.List;
import java.util.UUID;

/** What the worker does: claims messages, and ships their orders. */
record Shipping(EntityManagerFactory shop, String me) {
    private static final String CLAIM = """
            SELECT outbox_id, lease_token, CAST(payload ->> 'id' AS bigint) AS order_id
            FROM outbox.claim(:me, 10, '30 s')""";
    private static final String COMPLETE = """
            SELECT CAST(recorded AS text) FROM outbox.complete(:id, :token, :me, 'DISPATCHED')""";
    // Unlike complete(), complete_batch() does not raise P7002, but returns it.
    private static final String RETRY = """
            SELECT error FROM outbox.complete_batch(:me, ARRAY[CAST(:id AS uuid)],
                ARRAY[CAST(:token AS uuid)], '{RETRYABLE}', error_codes => ARRAY[:code])""";

    private record Message(UUID id, UUID token, long orderId) {}

    /** Returns how many messages there were. */
    int work() {
        List<Message> batch = shop.callInTransaction(this::claim); // committed at once
        batch.forEach(this::handle);
        return batch.size();
    }

    private List<Message> claim(EntityManager entities) {
        Query claim = entities.createNativeQuery(CLAIM, Tuple.class).setParameter("me", me);
        List<?> rows = claim.getResultList();
        return rows.stream().map(Tuple.class::cast).map(row -> new Message(
                row.get(0, UUID.class), row.get(1, UUID.class), row.get(2, Long.class))).toList();
    }

    private void handle(Message message) {
        try {
            shop.runInTransaction(entities -> {
                entities.persist(new Shipment(message.orderId()));
                entities.flush();
                report(entities, COMPLETE, message).getSingleResult();
            });
        } catch (PersistenceException failure) {
            String code = Shop.sqlState(failure);
            if (!code.equals("P7002")) { // P7002: another worker has the message, and ships it
                shop.runInTransaction(entities -> report(entities, RETRY, message)
                        .setParameter("code", code).getSingleResult());
            }
        }
    }

    private Query report(EntityManager entities, String sql, Message message) {
        return entities.createNativeQuery(sql, String.class)
                .setParameter("me", me)
                .setParameter("id", message.id()).setParameter("token", message.token());
    }
}
