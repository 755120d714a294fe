// Two rows of logits, mapped by a probmap server: binary tensors over a POSIX socket, and nothing
// but the standard library.
//
//     g++ -std=c++20 -O2 examples/cpp/probmap.cpp -o /tmp/probmap
//     /tmp/probmap [HOST:PORT] [MAPPING]
//
// The body is that of the Open Inference Protocol: a JSON header that describes the tensors, then
// their bytes, little-endian.

#include <netdb.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

static_assert(std::endian::native == std::endian::little, "floats are sent as they lie in memory");

using Floats = std::vector<float>;

struct Socket {
    int descriptor = -1;

    explicit Socket(const std::string& server) {
        size_t colon = server.rfind(':');
        if (colon == std::string::npos) throw std::runtime_error(server + " is not HOST:PORT");
        std::string host = server.substr(0, colon), port = server.substr(colon + 1);
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        if (int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found))
            throw std::runtime_error(server + ": " + gai_strerror(error));
        for (addrinfo* one = found; one && descriptor < 0; one = one->ai_next) {
            descriptor = socket(one->ai_family, SOCK_STREAM, 0);
            if (descriptor >= 0 && connect(descriptor, one->ai_addr, one->ai_addrlen) < 0) {
                close(descriptor);
                descriptor = -1;
            }
        }
        freeaddrinfo(found);
        if (descriptor < 0) throw std::runtime_error("no connection to " + server);
        timeval patience{30, 0};
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    Socket(const Socket&) = delete;
    ~Socket() { close(descriptor); }

    // The whole answer, head and body.
    std::string exchange(const std::string& request) {
        for (size_t sent = 0; sent < request.size();) {
            ssize_t count = send(descriptor, &request[sent], request.size() - sent, MSG_NOSIGNAL);
            if (count < 0) throw std::runtime_error(std::string("not sent: ") + strerror(errno));
            sent += count;
        }
        std::string answer;
        char part[65536];
        ssize_t count;
        while ((count = recv(descriptor, part, sizeof part, 0)) > 0) answer.append(part, count);
        if (count < 0) throw std::runtime_error(std::string("no answer: ") + strerror(errno));
        return answer;
    }
};

// What is wrong and what to do about it: the text "detail" of a problem document.
std::string message(const std::string& status, const std::string& document) {
    const std::string key = R"("detail":")";
    // A quote inside a text has a backslash before it, so that this is found nowhere else.
    size_t at = document.find(key);
    if (at == std::string::npos) return "the server answered " + status + ": " + document;
    std::string detail;
    for (at += key.size(); at < document.size() && document[at] != '"'; ++at) {
        if (document[at] == '\\') ++at;
        if (at < document.size()) detail += document[at];
    }
    return detail + " (" + status + ")";
}

size_t field(const std::string& head, const std::string& name) {
    for (size_t at = head.find("\r\n"); at != std::string::npos; at = head.find("\r\n", at + 2))
        if (strncasecmp(&head[at + 2], name.c_str(), name.size()) == 0)
            return std::stoul(head.substr(at + 2 + name.size()));
    throw std::runtime_error("the answer has no " + name);
}

std::string tensor(const std::string& name, const std::string& shape, const Floats& numbers) {
    return R"({"name": ")" + name + R"(", "datatype": "FP32", "shape": [)" + shape +
           R"(], "parameters": {"binary_data_size": )" + std::to_string(4 * numbers.size()) + "}}";
}

// The probabilities of logits, one row after the other; each row has its own temperature.
Floats map(const std::string& server, const std::string& mapping, const Floats& logits,
           const Floats& temperature) {
    std::string rows = std::to_string(temperature.size());
    std::string shape = rows + ", " + std::to_string(logits.size() / temperature.size());
    std::string body = R"({"inputs": [)" + tensor("logits", shape, logits) + ", " +
                       tensor("temperature", rows, temperature) +
                       R"(], "outputs": [{"name": "probabilities",)" +
                       R"( "parameters": {"binary_data": true}}]})";
    std::string header_length = std::to_string(body.size());
    for (const Floats* numbers : {&logits, &temperature})
        body.append(reinterpret_cast<const char*>(numbers->data()), 4 * numbers->size());

    // HTTP/1.0: the answer comes in one piece, never in chunks, and ends the connection.
    std::string answer = Socket(server).exchange(
        "POST /v2/models/" + mapping + "/infer HTTP/1.0\r\nHost: " + server +
        "\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: " +
        header_length + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    size_t end = answer.find("\r\n\r\n");
    if (end == std::string::npos || end < 12) throw std::runtime_error("what came is not HTTP");
    std::string status = answer.substr(9, 3), received = answer.substr(end + 4);
    answer.resize(end);
    if (status != "200") throw std::runtime_error(message(status, received));
    // One output was asked for, so that its numbers are all that follows the JSON.
    Floats probabilities(logits.size());
    size_t start = field(answer, "inference-header-content-length:");
    size_t size = 4 * probabilities.size();
    if (received.size() != field(answer, "content-length:") || received.size() != start + size)
        throw std::runtime_error("the answer is cut short");
    std::memcpy(probabilities.data(), &received[start], size);
    return probabilities;
}

int main(int count, char** arguments) try {
    auto given = [&](int place, const char* otherwise) {
        return std::string(place < count ? arguments[place] : otherwise);
    };
    // Minus infinity masks a class, which gets exactly 0.
    Floats p = map(given(1, "127.0.0.1:8000"), given(2, "sparsemax"),
                   {0, 0.5, 1, 1, -INFINITY, 3}, {1, 4});
    for (size_t at = 0; at < p.size(); at += 3)
        std::printf("%.4f %.4f %.4f\n", p[at], p[at + 1], p[at + 2]);
} catch (const std::exception& error) {
    std::cerr << "probmap: " << error.what() << '\n';
    return 1;
}
