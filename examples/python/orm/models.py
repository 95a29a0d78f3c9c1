"""The tables of schema.sql, as SQLAlchemy maps them."""

import os

from sqlalchemy import BigInteger, ForeignKey, Identity, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

# DATABASE_URL: postgresql+psycopg://...; prepare_threshold: for PgBouncer before 1.21.
engine = create_engine(os.environ["DATABASE_URL"], connect_args={"prepare_threshold": None})
Session = sessionmaker(engine)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    item: Mapped[str]


class Shipment(Base):
    __tablename__ = "shipments"
    # The table has no key, and SQLAlchemy wants one.
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
