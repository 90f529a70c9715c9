"""A small shop: it takes orders and payments, its warehouse ships what is paid, and unpaid orders are cancelled.

    orders        an order, and the table in which the shop keeps its orders
    messages      what the parts tell each other, and where
    counter       takes orders and payments
    warehouse     ships orders that are paid
    deadlines     cancels orders that are not paid in time
    application   all of it together
    background    the same beside a program without an event loop

What happens in the shop is told by messages; the counter, the warehouse and the deadlines do not know each other.
"""

from shop.application import Shop
from shop.background import BackgroundShop
from shop.counter import Bank, Charge
from shop.messages import Places
from shop.orders import Order, OrderState

__all__ = ["BackgroundShop", "Bank", "Charge", "Order", "OrderState", "Places", "Shop"]
