#!/bin/sh
# Makes vegeta's reports of the committed inputs anew with the vegeta on the PATH; run it only to move to another version.
set -eu
cd "$(dirname "$0")"
export TZ=UTC
for name in constant mixed one; do
	for type in text json hdrplot; do
		vegeta report -type="$type" "$name.json" >"$name.$type.txt"
	done
	vegeta report -type='hist[0,1ms,10ms]' "$name.json" >"$name.hist-ms.txt"
	vegeta report -type=hist -buckets='[1us,100us,1s]' "$name.json" >"$name.hist-us.txt"
	vegeta report -type=json -buckets='[1us,100us,1s]' "$name.json" >"$name.json-buckets.txt"
done
