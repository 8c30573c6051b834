"""Topic exchange: patterns of words, ``*`` for one word and ``#`` for any number of words.

Words are separated by dots, and an empty word counts: ``a..b`` has three. An empty key has no
word, so ``#`` matches it and ``*`` does not.
"""

from typing import Final

from features.routing.destinations import Destinations
from features.routing.model import Binding, Message

_ONE: Final = "*"
_ANY: Final = "#"


class _TrieNode:
    __slots__ = ("children", "destinations", "is_any")

    def __init__(self, *, is_any: bool = False) -> None:
        self.children: dict[str, _TrieNode] = {}
        self.destinations: Destinations | None = None
        self.is_any = is_any


class TopicTrie:
    """Bindings of a topic exchange, in a trie of the words of their keys.

    A key is matched word by word against all nodes that its first words reach, each node once. So
    patterns with several ``#`` cost no more than the nodes of the trie for each word.
    """

    def __init__(self) -> None:
        self._root = _TrieNode()
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        node = self._root
        for word in split_words(binding.routing_key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _TrieNode(is_any=word == _ANY)
            node = child
        if node.destinations is None:
            node.destinations = Destinations()
        node.destinations.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there, and the nodes that nothing else needs."""
        path = [(self._root, "")]
        for word in split_words(binding.routing_key):
            path.append((path[-1][0].children[word], word))
        node = path[-1][0]
        assert node.destinations is not None
        node.destinations.remove(binding.destination)
        if not node.destinations:
            node.destinations = None
        for (parent, _), (child, word) in zip(path[-2::-1], path[:0:-1], strict=True):
            if child.children or child.destinations is not None:
                break
            del parent.children[word]

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destinations whose pattern matches one of the message's routing keys."""
        for key in message.routing_keys:
            for node in self._reached(split_words(key)):
                if node.destinations is not None:
                    found.update(node.destinations)

    def _reached(self, words: list[str]) -> dict[_TrieNode, None]:
        nodes = _with_any({self._root: None})
        for word in words:
            self.touched += len(nodes)
            following: dict[_TrieNode, None] = {}
            for node in nodes:
                if node.is_any:
                    following[node] = None
                for choice in (word, _ONE):
                    child = node.children.get(choice)
                    if child is not None:
                        following[child] = None
            nodes = _with_any(following)
        self.touched += len(nodes)
        return nodes


def split_words(key: str) -> list[str]:
    """Return the words of a routing key or pattern.

    >>> split_words("a..b"), split_words("")
    (['a', '', 'b'], [])
    """
    return key.split(".") if key else []


def _with_any(nodes: dict[_TrieNode, None]) -> dict[_TrieNode, None]:
    """Add the nodes that ``#`` reaches without a word; ``#.#`` is followed to its end."""
    waiting = list(nodes)
    while waiting:
        child = waiting.pop().children.get(_ANY)
        if child is not None and child not in nodes:
            nodes[child] = None
            waiting.append(child)
    return nodes
