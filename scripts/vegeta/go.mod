// The peer that results are compared with, built from the module proxy by its version.
module vegetabuild
go 1.22
require github.com/tsenart/vegeta/v12 v12.12.0
