// Copies a local file into a volume and back, with several requests under way, and compares.
//
//     c++ -std=c++17 copy.cpp $(pkg-config --cflags --libs braid) -o copy
//     BRAID_CLUSTER=/srv/braid ./copy LOCAL braid://main/NAME
//
// Owners are `std::unique_ptr`s whose deleters close; failures are exceptions of the errno and the message.

#include <braid.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

struct Ending {
    void operator()(braid_client *client) const { braid_disconnect(client); }
    void operator()(braid_file *file) const { braid_close(file); }
};
using Client = std::unique_ptr<braid_client, Ending>;
using File = std::unique_ptr<braid_file, Ending>;

[[noreturn]] void failed() { throw std::system_error(errno, std::generic_category(), braid_error()); }

template <typename T> T *made(T *pointer)
{
    if (pointer == nullptr)
        failed();
    return pointer;
}

template <typename T> T checked(T result)
{
    if (result < 0)
        failed();
    return result;
}

// A piece of the file under way. The memory lives as long as the request.
struct Piece {
    std::vector<char> bytes;
    braid_request *request = nullptr;

    Piece(std::size_t length) : bytes(length) {}
    Piece(const Piece &) = delete;
    Piece &operator=(const Piece &) = delete;
    ~Piece()
    {
        if (request != nullptr)
            braid_wait(request);
    }
    ssize_t wait() { return checked(braid_wait(std::exchange(request, nullptr))); }
};

constexpr std::size_t PIECE_BYTES = 4 << 20;
constexpr std::size_t TOGETHER = 4;

std::uint64_t put(std::istream &from, braid_file *to)
{
    std::deque<std::unique_ptr<Piece>> running;
    std::uint64_t offset = 0;
    while (from) {
        auto piece = std::make_unique<Piece>(PIECE_BYTES);
        from.read(piece->bytes.data(), PIECE_BYTES);
        braid_extent place{piece->bytes.data(), static_cast<std::size_t>(from.gcount()), offset};
        offset += place.length;
        piece->request = made(braid_submit_write(to, &place, 1));
        running.push_back(std::move(piece));
        if (running.size() == TOGETHER) {
            running.front()->wait();
            running.pop_front();
        }
    }
    for (auto &piece : running)
        piece->wait();
    return offset;
}

void compare(std::istream &local, braid_file *file, std::uint64_t length)
{
    std::vector<char> ours(PIECE_BYTES), theirs(PIECE_BYTES);
    for (std::uint64_t offset = 0; offset < length;) {
        auto read = checked(braid_pread(file, theirs.data(), theirs.size(), offset));
        local.read(ours.data(), read);
        bool is_same = std::equal(theirs.begin(), theirs.begin() + read, ours.begin());
        if (read == 0 || local.gcount() != read || !is_same)
            throw std::runtime_error("what came back differs at " + std::to_string(offset));
        offset += static_cast<std::uint64_t>(read);
    }
}

} // namespace

int main(int count, char **arguments)
try {
    if (count != 3)
        throw std::runtime_error("usage: copy LOCAL braid://VOLUME/NAME");
    Client client{made(braid_connect(nullptr))};
    std::ifstream local{arguments[1], std::ios::binary};
    if (!local)
        throw std::system_error(errno, std::generic_category(), arguments[1]);
    File file{made(braid_open(client.get(), arguments[2], O_RDWR | O_CREAT | O_TRUNC, nullptr))};
    auto length = put(local, file.get());
    checked(braid_close(file.release()));

    file.reset(made(braid_open(client.get(), arguments[2], O_RDONLY, nullptr)));
    local.clear();
    local.seekg(0);
    compare(local, file.get(), length);
    std::cout << "copied and compared " << length << " bytes\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << "copy: " << error.what() << '\n';
    return 1;
}
