module seawall/client

go 1.24.0

require (
	cloud.google.com/go/compute/metadata v0.9.0
	golang.org/x/oauth2 v0.30.0
)

require golang.org/x/sys v0.35.0 // indirect
