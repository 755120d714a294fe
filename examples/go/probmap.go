// Two rows of logits, mapped by a probmap server: binary tensors over net/http, and nothing but the
// standard library.
//
//	go run examples/go/probmap.go [URL] [MAPPING]
//
// The body is that of the Open Inference Protocol: a JSON header that describes the tensors, then
// their bytes, little-endian.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

const lengthHeader = "Inference-Header-Content-Length"

// Unless told not to, Go asks for gzip, which takes longer than sending numbers to a neighbour.
var client = &http.Client{
	Timeout:   30 * time.Second,
	Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true},
}

// Problem is what the server says when it says no (RFC 9457).
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`   // stable, for programs
	Detail string `json:"detail"` // what is wrong and what to do about it
}

func (p *Problem) Error() string { return fmt.Sprintf("%s (%s)", p.Detail, p.Code) }

// object is shorter to read than its type.
type object = map[string]any

func tensor(name string, count int, shape ...int) object {
	return object{
		"name":       name,
		"datatype":   "FP32",
		"shape":      shape,
		"parameters": object{"binary_data_size": 4 * count},
	}
}

// Map returns the probabilities of logits, one row after the other; each row has its own
// temperature.
func Map(server, mapping string, logits, temperature []float32) ([]float32, error) {
	rows := len(temperature)
	header, err := json.Marshal(object{
		"inputs": []object{
			tensor("logits", len(logits), rows, len(logits)/rows),
			tensor("temperature", rows, rows),
		},
		"outputs": []object{{"name": "probabilities", "parameters": object{"binary_data": true}}},
	})
	if err != nil {
		return nil, err
	}
	body := bytes.NewBuffer(header)
	for _, numbers := range [][]float32{logits, temperature} {
		if err := binary.Write(body, binary.LittleEndian, numbers); err != nil {
			return nil, err
		}
	}
	tensors, err := post(server+"/v2/models/"+url.PathEscape(mapping)+"/infer", len(header), body)
	if err != nil {
		return nil, err
	}
	// One output was asked for, so that its numbers are all there is.
	if len(tensors) != 4*len(logits) {
		return nil, fmt.Errorf("%d bytes were due, but %d came", 4*len(logits), len(tensors))
	}
	probabilities := make([]float32, len(logits))
	err = binary.Read(bytes.NewReader(tensors), binary.LittleEndian, probabilities)
	return probabilities, err
}

// post returns the tensors of the answer: what follows its JSON.
func post(address string, headerLength int, body io.Reader) ([]byte, error) {
	request, err := http.NewRequest(http.MethodPost, address, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	request.Header.Set(lengthHeader, strconv.Itoa(headerLength))
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		problem := &Problem{}
		if json.Unmarshal(content, problem) != nil || problem.Code == "" {
			return nil, fmt.Errorf("the server answered %s: %s", response.Status, content)
		}
		return nil, problem
	}
	start, err := strconv.Atoi(response.Header.Get(lengthHeader))
	if err != nil || start < 0 || start > len(content) {
		return nil, errors.New("the answer has no tensors")
	}
	return content[start:], nil
}

func main() {
	server, mapping := "http://127.0.0.1:8000", "sparsemax"
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	if len(os.Args) > 2 {
		mapping = os.Args[2]
	}
	// Minus infinity masks a class, which gets exactly 0.
	masked := float32(math.Inf(-1))
	logits := []float32{0, 0.5, 1, 1, masked, 3}
	probabilities, err := Map(server, mapping, logits, []float32{1, 4})
	if err != nil {
		fmt.Fprintln(os.Stderr, "probmap:", err)
		os.Exit(1)
	}
	for row := probabilities; len(row) > 0; row = row[3:] {
		fmt.Printf("%.4f %.4f %.4f\n", row[0], row[1], row[2])
	}
}
