// The program that charts are installed with, built from the module proxy by its version, for tests of ours.
module helmbuild

go 1.24.0

require helm.sh/helm/v3 v3.19.0
