//! The looks at pods, through a cloud's dialects and an emulated cloud behind them.

mod aws_outage;
mod aws_sdks;
