//! Runs one load from many pods.
//!
//! Kubernetes does the work: an Indexed Job starts and ends the pods, their logs carry the results, and orders go through the same API as
//! `kubectl attach`. There is no extra server, no open port in a pod and no credentials in a pod.
//!
//! - [`pod_inputs`] are the inputs of the pods, and [`manifest`] has the Kubernetes objects ([`json_to_yaml`] writes them for people).
//! - [`job`] creates the objects and waits for the pods, and [`job_obstacles`] describes obstacles.
//! - [`protocol`] has the lines between the controller and the pods, and [`pod_channel`] the channel that carries them.
//!
//! A pod runs `seawall pod`, which reads the user's arguments of `attack`, `find` or `isolate`, gets ready and follows orders. The channel
//! is the API server, or pipes to processes in a test.

pub mod async_runtime_thread;
pub mod clocks;
pub mod fleet;
pub mod gather;
pub mod job;
pub mod job_obstacles;
pub mod json_to_yaml;
pub mod kubernetes_pod_channel;
pub mod local_process_pods;
pub mod manifest;
pub mod pod_channel;
pub mod pod_inputs;
pub mod protocol;
