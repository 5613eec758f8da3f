//! Helpers for tests only: servers that do exactly what a test tells them, well or badly, a real Kubernetes control plane
//! and a client for it, a relay before it, with the objects that tests make in it, a whole node of a cluster, the agent as a process, models of
//! its clients, a real browser, fault servers and pages of the tool, and functions that wait.

pub mod agent;
pub mod api_server_relay;
pub mod aws_sdk_models;
pub mod browser;
pub mod closure_server;
pub mod control_plane;
pub mod counting_server;
pub mod fault_server_process;
pub mod http2_frames;
pub mod installed_test_parts;
pub mod kubernetes_client;
pub mod node;
pub mod objects;
pub mod pod_process;
pub mod ready_control_plane;
pub mod tls;
pub mod waiting;
