//! What `/proc/net`, `/proc/sys/net` and `/sys/class/net` say of this network namespace.
