"""Reading a statement word by word: for the statements that are ours rather than Spark's."""

from __future__ import annotations

from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from belvedere.sql.parser import QUOTED, SqlText, split_words


class TokenCursor:
    """A position among the tokens of one statement."""

    def __init__(self, source: SqlText):
        self.source = source
        self.position = 0
        self.words = split_words(source.tokens)

    @property
    def token(self) -> Token | None:
        return self.words[self.position][1] if self.position < len(self.words) else None

    @property
    def done(self) -> bool:
        return self.position >= len(self.words)

    def peek(self, ahead: int = 0) -> str:
        """The coming word in upper case; empty at the end and for quoted things."""
        if self.position + ahead >= len(self.words):
            return ""
        word, token = self.words[self.position + ahead]
        return "" if token.token_type in QUOTED else word.upper()

    def accept(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if all(self.peek(i) == word for i, word in enumerate(words)):
            self.position += len(words)
            return True
        return False

    def expect(self, *words: str, hint: str | None = None) -> None:
        """Step over these words, or refuse."""
        for word in words:
            if not self.accept(word):
                self.fail(f"expected {word}", hint)

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        """A syntax error where the cursor stands."""
        if self.done:
            last = self.source.tokens[-1]
            raise self.source.error(f"{message}, found the end of the statement", last, hint)
        raise self.source.error(f"{message}, found {self.words[self.position][0]!r}", self.token, hint)

    def identifier(self, what: str) -> tuple[str, Token]:
        """A name; keywords that are not reserved count as names."""
        if self.done:
            self.fail(f"expected {what}")
        word, token = self.words[self.position]
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not (
            token.token_type is TokenType.IDENTIFIER or word.replace("_", "a").isalnum()
        ):
            self.fail(f"expected {what}")
        self.position += 1
        if self.peek() == ".":
            raise self.source.unsupported(
                f"{what} {word!r} has several parts", token, "one database has one schema: write the bare name"
            )
        return word, token

    def names(self, what: str) -> list[tuple[str, Token]]:
        """A parenthesised list of names."""
        self.expect("(")
        found = [self.identifier(what)]
        while self.accept(","):
            found.append(self.identifier(what))
        self.expect(")")
        return found

    def text(self, what: str) -> tuple[str, Token]:
        """A string or a number."""
        token = self.token
        if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
            self.fail(f"expected {what}")
        self.position += 1
        return token.text, token

    def rest(self) -> SqlText:
        """What is left, for the query parser."""
        token = self.token
        if token is None:
            self.fail("expected a query", "AS SELECT …")
        return SqlText(self.source.text, tuple(t for t in self.source.tokens if t.start >= token.start))

    def end(self) -> None:
        """Nothing may follow."""
        if not self.done:
            self.fail("expected the end of the statement", "end it here")
