package shop;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * Places an order for each item that is named. An order and its message are stored together or not
 * at all, and an order that fails leaves a connection that is ready for the next one.
 */
public final class Producer {
    private static final String INSERT = "INSERT INTO orders (item) VALUES (?) RETURNING id";
    private static final String ENQUEUE = """
            SELECT outbox.enqueue('order.placed', jsonb_build_object('id', o.id, 'item', o.item),
                aggregate_type => 'order', aggregate_id => o.id::text)
            FROM orders o WHERE o.id = ?""";

    static long placeOrder(Connection db, String item) throws SQLException {
        db.setAutoCommit(false);
        try (PreparedStatement insert = db.prepareStatement(INSERT);
                PreparedStatement enqueue = db.prepareStatement(ENQUEUE)) {
            insert.setString(1, item);
            long id;
            try (ResultSet row = insert.executeQuery()) {
                row.next();
                id = row.getLong(1);
            }
            enqueue.setLong(1, id);
            enqueue.execute();
            db.commit();
            return id;
        } catch (SQLException failure) {
            db.rollback();
            throw failure;
        } finally {
            db.setAutoCommit(true);
        }
    }

    public static void main(String[] items) throws SQLException {
        int status = 0;
        try (Connection db = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
            for (String item : items) {
                try {
                    System.out.println("order " + placeOrder(db, item));
                } catch (SQLException failure) {
                    System.err.println("no order of " + item + ": " + failure.getMessage());
                    status = 1;
                }
            }
        }
        System.exit(status);
    }
}
