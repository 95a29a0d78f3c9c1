package shop.orm;

import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.PersistenceException;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Ships each order exactly once, with Hibernate: the shipment and the report of its message are one
 * transaction. A worker that dies, or whose lease is lost, has shipped nothing.
 */
public final class Worker {
    private static final CountDownLatch STOPPING = new CountDownLatch(1);

    private static void work(Shipping shipping) throws InterruptedException {
        long pause = 100;
        while (STOPPING.getCount() > 0) {
            try {
                if (shipping.work() > 0) {
                    pause = 100;
                    continue;
                }
            } catch (PersistenceException failure) { // a lost connection: the pool makes another one
                System.err.println("trying again: " + failure.getMessage());
            }
            if (!STOPPING.await(pause, TimeUnit.MILLISECONDS)) {
                pause = Math.min(2 * pause, 1_000);
            }
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Thread worker = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            STOPPING.countDown();
            try {
                worker.join(); // the JVM ends when this hook does
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        try (EntityManagerFactory shop = Shop.open()) {
            work(new Shipping(shop, ManagementFactory.getRuntimeMXBean().getName())); // pid@host
        }
    }
}
