//! Properties that hold for any bytes at all. The fuzz targets and the tests share them: the tests replay the corpus and generate
//! input of their own, so that a crash found there is a test here.
//!
//! There is one module, and one feature, for each crate that reads foreign input. A broken invariant panics.

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
