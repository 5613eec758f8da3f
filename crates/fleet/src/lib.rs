//! One load from many pods.
//!
//! The engine of it is Kubernetes: an Indexed Job starts the pods and ends them, their logs bring their figures back, and orders go to
//! them by the way that `kubectl attach` takes. No server of ours, no port in a pod, no credentials there.
//!
//! [`materials`] is what pods are given, [`manifest`] the objects that make them ([`yaml`] writes them for people), [`job`] asks an API server for those
//! and waits for the pods, [`preflight`] has words for whatever stands in their way or ends them.
//!
//! A pod runs `seawall pod`, which reads the arguments that its user gave to `attack`, `find` or `isolate`, gets ready, and does what it is
//! told: [`protocol`] has the lines. [`wire`] is what carries them, whatever it is: the API server, or pipes to processes of a test.

pub mod clocks;
pub mod fleet;
pub mod gather;
pub mod job;
pub mod manifest;
pub mod materials;
pub mod pods;
pub mod preflight;
pub mod processes;
pub mod protocol;
pub mod runtime;
pub mod wire;
pub mod yaml;
