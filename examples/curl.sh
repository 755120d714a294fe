#!/bin/sh
# What curl (7.82 or later) alone can ask of a probmap server: JSON, binary numbers, a stream.
#
#     sh examples/curl.sh [URL] [MAPPING]
set -eu
export LC_ALL=C # numbers with a point

url=${1:-http://127.0.0.1:8000}
mapping=${2:-sparsemax}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# --fail-with-body makes the exit code 22 when the server says no, and still prints its answer, a
# problem document: "detail" says what is wrong, "code" is stable and meant for programs.
ask() {
    path=$1
    shift
    curl --silent --show-error --max-time 30 --fail-with-body "$url$path" "$@"
}

# Prints float32 as text, three a line; od reads them as this machine has them, little-endian.
floats() {
    od -A n -v -t fF | xargs printf '%.4f %.4f %.4f\n'
}

echo "== JSON: two rows, of which null masks a class, each with its own temperature"
ask /v1/map --json '{
  "logits": [[0, 0.5, 1], [1, null, 3]],
  "mapping": {"name": "'"$mapping"'", "temperature": [1, 4]}
}'
echo

echo "== Tokens: six a row, the same again for the same seed"
ask /v1/sample --json '{
  "logits": [[0, 0.5, 1], [1, null, 3]],
  "mapping": {"name": "'"$mapping"'", "temperature": [1, 4]},
  "samples": 6, "seed": [7, 8], "outputs": ["tokens"]
}'
echo

echo "== Binary: one row of float32, 0 0.5 1; of the answer the last 12 bytes are its row"
printf '\000\000\000\000\000\000\000\077\000\000\200\077' > "$folder/logits"
ask "/v2/models/$mapping/infer" --data-binary "@$folder/logits" --output "$folder/answer" \
    -H 'Content-Type: application/octet-stream' -H 'Inference-Header-Content-Length: 0'
tail -c 12 "$folder/answer" | floats

echo "== safetensors: eight bytes of length, so long a header in JSON, then the numbers"
ask /v1/map -H 'Content-Type: application/json' -H 'Accept: application/vnd.safetensors' \
    --output "$folder/answer" -d '{
  "logits": [[0, 0.5, 1], [1, null, 3]],
  "mapping": {"name": "'"$mapping"'", "temperature": [1, 4]},
  "dtype": "float32"
}'
length=$(od -A n -t u8 -N 8 "$folder/answer" | tr -d ' ')
tail -c "+$((8 + length + 1))" "$folder/answer" | floats

echo "== A stream: a request a line, sent and answered as it comes; one that fails ends nothing"
for temperature in 1 0.5 '"cold"'; do
    echo '{"logits": [0, 0.5, 1], "mapping": "'"$mapping"'", "temperature": '"$temperature"'}'
done | ask /v1/stream --no-buffer -T - -X POST -H 'Content-Type: application/x-ndjson'

echo "== An error: alpha of entmax goes up to 16"
status=0
ask /v1/map --json '{"logits": [0, 0.5, 1], "mapping": "entmax", "alpha": 20}' || status=$?
echo
echo "curl exits $status"
