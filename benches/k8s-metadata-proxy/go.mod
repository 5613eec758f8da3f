// The concealing proxy of the field, built from the module proxy by its version: a peer in benches/agent.
module kmpbuild

go 1.26.0

require github.com/GoogleCloudPlatform/k8s-metadata-proxy v0.1.12

require (
	github.com/prometheus/client_golang v1.25.0 // indirect
	golang.org/x/net v0.62.0 // indirect
)
