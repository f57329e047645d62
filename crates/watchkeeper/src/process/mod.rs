//! How does a program with controllers live and end? Workers that survive their panics, and signals that stop it in order.
