//! vhost-user: how QEMU hands a guest's memory, rings, doorbells and interrupts to another process.
