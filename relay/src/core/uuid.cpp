#include "core/uuid.h"

namespace relay {

std::string
text_of(const Uuid &uuid)
{
	constexpr char digits[] = "0123456789abcdef";
	std::string result(36, '-');
	size_t at = 0;

	for (size_t i = 0; i < uuid.size(); i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			at++;
		result[at++] = digits[uuid[i] >> 4];
		result[at++] = digits[uuid[i] & 15];
	}
	return result;
}

} // namespace relay
