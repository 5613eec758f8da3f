#!/bin/sh
# Makes the golden files anew with the vegeta on the PATH. They are committed; run this only to move to another version.
set -eu
cd "$(dirname "$0")"
export TZ=UTC
for set in "" headers.; do
	vegeta encode -to gob "${set}source.json" >"${set}results.gob"
	vegeta encode -to json "${set}results.gob" >"${set}results.json"
	vegeta encode -to csv "${set}results.gob" >"${set}results.csv"
done
# Every direction there is, for what is empty or absent.
for from in gob csv; do
	vegeta encode -to $from empty.source.json >empty.source.$from
done
for from in gob json csv; do
	for to in gob json csv; do
		vegeta encode -to $to empty.source.$from >empty.$from-to.$to
	done
done
# Results of an older and a newer vegeta, and of something else; needs no module.
go run versions.go .
