// Where there is no libFuzzer: feeds the target with mutated seeds for a while.
//
//   fuzz SECONDS       SEED=n repeats a run, as far as its time reaches
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../../../test/unit/seed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

using namespace std::literals;

const std::string seeds[] = {
	"\0[[source]]\ndsn = { env = \"HOME\" }\nqueues = [\"a\"]\n[sink.k]\ntype = \"kafka\"\ntimeout = \"5s\"\n"
	"properties = { a.b = 1 }\n[[route]]\nsink = \"k\"\ntopic = \"{queue|'x'}\"\nheader.a = \"{header:b}\"\n"s,
	"\0[[source]]\ndsn = \"host=db\"\n[sink.h]\ntype = \"http\"\n[[override]]\ncode = \"X_AWAY\"\nclass = \"away\"\n"s,
	"\1a*b?\nabcb\n00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n{{{queue|header:x|'it''s'}}}-{attempt}"s,
	"\2\3\2order.placed\n17\n{\"a\": \"x\\n\", \"b\": {\"c\": [1, \"}\"]}, \"d\": 1e400}\n{\"x\": 1.10}"s,
	"\2\0\1type\nid\n{}\n\"text\""s,
};

std::string
mutated(std::string text, std::mt19937_64 &random)
{
	constexpr std::string_view marks = "{}[]|':\"\\\n,=.#\0\xff\xc2\x85 a1"sv;

	for (size_t i = random() % 8; i > 0 && !text.empty(); i--)
	{
		const size_t at = random() % text.size(), length = random() % (text.size() - at) + 1;
		switch (random() % 4)
		{
			case 0:
				text[at] = marks[random() % marks.size()];
				break;
			case 1:
				text.insert(at, 1, marks[random() % marks.size()]);
				break;
			case 2:
				text.erase(at, length);
				break;
			default:
				text.insert(random() % text.size(), text.substr(at, length));
		}
	}
	return text;
}

} // namespace

int
main(int argc, char **argv)
{
	auto random = outbox::test::generator();
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(argc > 1 ? atoi(argv[1]) : 10);
	std::vector<std::string> corpus(std::begin(seeds), std::end(seeds));
	size_t runs = 0;

	for (; std::chrono::steady_clock::now() < end; runs++)
	{
		const std::string text = mutated(corpus[random() % corpus.size()], random);
		LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(text.data()), text.size());
		if (corpus.size() < 1000 && text.size() < 4096)
			corpus.push_back(text);
	}
	printf("%zu runs\n", runs);
	return runs > 0 ? 0 : 1;
}
