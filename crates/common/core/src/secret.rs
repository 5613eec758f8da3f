//! A secret value. Its `Debug` output hides the value, the type does not implement `Serialize`, and dropping a secret overwrites
//! its memory.
//!
//! Dropping a secret does not overwrite copies inside TLS or socket buffers (see THREAT-MODEL.md).

use std::fmt;

use zeroize::Zeroize;

/// A secret such as a token. Code can read the value only through [`Secret::expose`].
#[derive(Clone)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a value. From then on, code can read the value only through [`Secret::expose`].
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns a reference to the value. In code reviews, check each use of this method.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// Returns a mutable reference to the value, to fill it.
    pub fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_value() {
        let text = format!("{:?}", Secret::new(String::from("ya29.very-secret")));
        assert_eq!(text, "Secret(…)");
    }
}
