//! The configuration keys that a reload can change, and the keys that need a restart. Each cloud lists the keys of its section.

/// The keys of a cloud's section, by their behaviour at a reload. A name that ends with a dot covers all keys below it.
#[derive(Clone, Copy, Debug)]
pub struct ReloadableKeys {
    /// Keys that a reload can change while the agent runs.
    pub reloadable: &'static [&'static str],
    /// Keys that need a restart after a change.
    pub keys_needing_restart: &'static [&'static str],
}
