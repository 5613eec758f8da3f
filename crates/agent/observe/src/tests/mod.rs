//! Tests the pod scanners with a cloud's dialects and an emulated cloud.

mod aws_outage;
mod aws_sdks;
