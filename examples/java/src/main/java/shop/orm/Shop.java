package shop.orm;

import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.PersistenceConfiguration;
import java.sql.SQLException;

/** The tables of schema.sql, as Hibernate maps them, over a pool of connections. */
final class Shop {
    static EntityManagerFactory open() {
        return new PersistenceConfiguration("shop")
                .managedClass(Order.class)
                .managedClass(Shipment.class)
                .property(PersistenceConfiguration.JDBC_URL, System.getenv("DATABASE_URL"))
                .property("hibernate.hikari.maximumPoolSize", "2")
                .property("hibernate.hikari.connectionTimeout", "5000")
                .createEntityManagerFactory();
    }

    /** The SQLSTATE behind an exception of Hibernate. */
    static String sqlState(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException sql && sql.getSQLState() != null) {
                return sql.getSQLState();
            }
        }
        return failure.getClass().getSimpleName();
    }

    private Shop() {}
}
