//! A guest: a stock kernel and a small file system from Debian's packages, started in QEMU beside a device of ours.
