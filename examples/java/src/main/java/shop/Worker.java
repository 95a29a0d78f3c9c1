package shop;

import java.lang.management.ManagementFactory;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import org.postgresql.PGConnection;

/**
 * Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
 * the messages of a worker that dies, or loses its connection or leases, go to another worker.
 */
public final class Worker {
    private static final String ME = ManagementFactory.getRuntimeMXBean().getName(); // pid@host
    private static volatile boolean stopping;

    private static void work() throws SQLException {
        try (Connection db = DriverManager.getConnection(System.getenv("DATABASE_URL"));
                Statement listen = db.createStatement()) {
            if (System.getenv("POOLED") == null) { // a pool in transaction mode has no LISTEN
                listen.execute("LISTEN outbox_pending"); // before the first claim
            }
            int pause = 100;
            while (!stopping) {
                if (Batch.work(db, ME)) {
                    pause = 100;
                } else {
                    db.unwrap(PGConnection.class).getNotifications(pause);
                    pause = Math.min(2 * pause, 1_000);
                }
            }
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Delivery.requireReceiver();
        Thread worker = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                worker.join(); // the JVM ends when this hook does
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        while (!stopping) {
            try {
                work();
            } catch (SQLException failure) { // a lost connection: connect, LISTEN and claim again
                System.err.println("trying again: " + failure.getMessage());
                Thread.sleep(1_000);
            }
        }
    }
}
