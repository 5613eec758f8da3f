//! Which keys of a section a reload may change. Each cloud says that of its own keys.

/// Which keys of a cloud's section another file may change while the agent runs. A name that ends with a dot stands for all below it.
#[derive(Clone, Copy, Debug)]
pub struct ReloadableKeys {
    /// These.
    pub reloadable: &'static [&'static str],
    /// And these need a restart.
    pub needs_restart: &'static [&'static str],
}
