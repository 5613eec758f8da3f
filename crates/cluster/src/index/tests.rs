//! Model against index.
