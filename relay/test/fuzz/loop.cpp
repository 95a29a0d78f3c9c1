// Where there is no libFuzzer: feeds the target with the seeds, and then with mutated ones for a while.
//
//   fuzz SECONDS FOLDER    the seeds are the files there; SEED=n repeats a run, as far as its time reaches
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../../../test/unit/seed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

using namespace std::literals;

std::vector<std::string>
seeds(const char *folder)
{
	std::vector<std::string> result;

	for (const auto &file : std::filesystem::directory_iterator(folder))
	{
		std::ifstream in(file.path(), std::ios::binary);
		result.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
	}
	std::sort(result.begin(), result.end()); // as a folder has no order, and the run is to be repeated
	return result;
}

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
	if (argc != 3)
		return 2;

	auto random = outbox::test::generator();
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(atoi(argv[1]));
	std::vector<std::string> corpus = seeds(argv[2]);
	const size_t given = corpus.size();
	size_t runs = 0;

	for (; runs < given || std::chrono::steady_clock::now() < end; runs++)
	{
		const std::string text = runs < given ? corpus[runs] : mutated(corpus[random() % corpus.size()], random);
		LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(text.data()), text.size());
		if (runs >= given && corpus.size() < 1000 && text.size() < 4096)
			corpus.push_back(text);
	}
	printf("%zu runs\n", runs);
	return runs > 0 ? 0 : 1;
}
