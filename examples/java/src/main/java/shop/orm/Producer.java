package shop.orm;

import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.PersistenceException;

/**
 * Places an order for each item that is named, with Hibernate. The message is stored by the order's
 * own transaction: together with the order or not at all.
 */
public final class Producer {
    private static final String ENQUEUE = """
            SELECT CAST(outbox_id AS text) FROM outbox.enqueue('order.placed',
                jsonb_build_object('id', CAST(:id AS bigint), 'item', CAST(:item AS text)),
                aggregate_type => 'order', aggregate_id => CAST(:id AS text))""";

    static long placeOrder(EntityManager shop, String item) {
        Order order = new Order(item);
        shop.persist(order); // the database gives the order its id
        shop.createNativeQuery(ENQUEUE, String.class)
                .setParameter("id", order.id())
                .setParameter("item", item)
                .getSingleResult();
        return order.id();
    }

    public static void main(String[] items) {
        int status = 0;
        try (EntityManagerFactory shop = Shop.open()) {
            for (String item : items) {
                try {
                    long id = shop.callInTransaction(entities -> placeOrder(entities, item));
                    System.out.println("order " + id);
                } catch (PersistenceException failure) {
                    System.err.println("no order of " + item + ": " + Shop.sqlState(failure));
                    status = 1;
                }
            }
        }
        System.exit(status);
    }
}
