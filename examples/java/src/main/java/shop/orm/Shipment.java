package shop.orm;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;

@Entity
@Table(name = "shipments")
class Shipment {
    @Id
    @Column(name = "order_id")
    private Long orderId;

    protected Shipment() {}

    Shipment(Long orderId) {
        this.orderId = orderId;
    }
}
