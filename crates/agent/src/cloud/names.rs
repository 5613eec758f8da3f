//! The names of the clouds. Part of the list, and apart from it so that whoever names a cloud need not know its room.

use serde::Serialize;

/// A cloud by its name: that of its section, and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CloudName {
    Google,
    #[cfg(test)]
    Tide,
}

impl CloudName {
    /// All there are.
    pub(crate) const ALL: &[Self] = &[
        Self::Google,
        #[cfg(test)]
        Self::Tide,
    ];

    /// As it is written.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Google => "google",
            #[cfg(test)]
            Self::Tide => "tide",
        }
    }
}
