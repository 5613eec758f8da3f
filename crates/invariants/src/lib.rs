//! What must hold for any bytes at all, in one place for the fuzz targets and for the tests that replay their corpus and
//! generate input of their own, so that a crash found there is a test here.
//!
//! One module, and one feature, for each crate that reads what somebody else wrote. A broken invariant panics.

#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kubectl")]
pub mod kubectl;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "load")]
pub mod load;
#[cfg(feature = "protocols")]
pub mod protocols;
