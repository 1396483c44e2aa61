"""The languages of texts: judged by function words where the script is Latin, by the letters of each word elsewhere.

The function words are also the stop words of a question in that language, except English ones that negate.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from graphagent.memory.notes.index._words import WORD, folded

ENGLISH = "english"
COMPOUNDING = frozenset({"danish", "dutch", "finnish", "german", "hungarian", "norwegian", "swedish"})
"""The languages that write compounds as one word."""
# As in most lists of English stop words, but without words that negate.
_STOPWORDS = {
    ENGLISH: """
    a about above after again all am an and any are as at be because been before being below between both but by can could did
    do does doing down during each few for from further had has have having he her here hers herself him himself his how i if in into
    is it its itself just let me more most my myself of off on once only or other our ours ourselves out over own please same she should
    so some such than that the their theirs them themselves then there these they this those through to too under until up us very was
    we were what when where which while who whom whose why will with would you your yours yourself yourselves s t d ll m re ve""",
    "danish": """
    ikke ingen uden kun
    å ad af alle alt anden andet andre at av blev blive bliver bort da de dem den denne der deres det dette dig din dine disse dit dog du
    efter eller en end er et for fordi fra få får gør ham han hans har havde have hende hendes her hun hvad hvem hver hvilken hvilket
    hvilke hvis hvor hvordan hvorfor hvornår i ind jeg jer jeres jo kan kom kunne lige man mange med meget mellem men mere mig min mine
    mit mod mod må nogen noget nogle nu når og også om op os over på sig sin sine sit siden skal skulle som så til ud under var ved vi vil
    ville vor vores være været""",
    "dutch": """
    niet geen zonder
    aan al alle alles als altijd andere ben bij daar dan dat de deze die dit doen doet door dus een eens en er ge had hadden heb hebben
    hebt heeft hem het hier hij hoe hoeveel hoelaat hun iemand iets ik in is ja je jij jou jouw jullie kan kun kunnen maar me mee meer men
    met mij mijn moet moeten mogen na naar nog nu of om omdat ons onze ook op over te tegen toch toen tot u uit uw van veel voor waar
    waarom wanneer want waren was wat we wel welk welke werd wie wij wil willen word worden wordt zal ze zei zelf zich zij zijn zo zou zullen""",
    "finnish": """
    ole eikä
    että ei en et eivät ennen hän hänen hänet häntä he heidän ja joka jonka jos jota jotka kai kanssa kuin kuka ketkä kenen kenelle kun
    koska me meidän meille mihin mikä mikäs milloin millainen minkä minne minä minua minun minulla minulle minut missä mistä mitä mitkä
    monta montako kuinka miten miksi mutta myös ne niiden niin nyt oli olen olet olemme olette olin olisi olivat olla ollut on onko
    ovat paljonko se sekä sen sille sillä siinä siitä sitä sinä sinun sinulla sinulle tai te tämä tämän tässä tätä tuo tuon vai vain
    voi voinko vielä""",
    "french": """
    ne pas jamais sans plus rien
    à ai alors après as au aussi autre autres aux avait avant avec avez avoir avons c ça car ce ceci cela celle celui ces cet cette chez
    combien comme comment d dans de depuis des dois doit donc dont du elle elles en encore entre es est et étaient était êtes être eu eux
    fait faut il ils j je jusqu l la là laquelle le lequel les leur leurs lors lui m ma mais me même mes moi mon n nos notre nous on ont ou
    où par parce pendant peut pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa se ses si son sont sous suis sur t ta te
    tes toi ton toujours tous tout toute toutes très tu un une vers voici voilà vos votre vous y""",
    "german": """
    nicht kein keine keinen keiner nie nichts
    ab aber alle allem allen aller alles als also am an ander andere anderen anderer auch auf aus bei beim bin bis bist da dabei damit
    dann das dass daß dein deine deinem deinen deiner dem den denn der deren des dessen dich die dies diese diesem diesen dieser dieses
    darf dürfen dir doch dort du durch ein eine einem einen einer eines er es etwas euch euer eure für gegen gibt ging hab habe haben hast hat hatte
    hatten hatte hätte hier hin ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ist ja jede jedem jeden jeder jedes jetzt kann kannst
    können könnte konnte machen macht mal man mehr mein meine meinem meinen meiner mich mir mit muss müssen musste nach noch nun nur ob
    oder ohne schon sehr sein seine seinem seinen seiner seit selbst sich sie sind so soll sollen sollte sondern sowie über um und uns
    unser unsere unserem unseren unserer unter vom von vor wann war waren warum was wegen weil welche welchem welchen welcher welches wem
    wen wenn wer werde werden wessen wie wieder wieso wieviel will wir wird wirst wo wohin woher womit wofür worden wurde wurden würde
    zu zum zur zwischen""",
    "hungarian": """
    nem nincs
    a abban addig ahogy aki akik akkor ami amikor amit annak arra attól az azok azon azért aztán azt be csak de e egy ehhez el ennek
    erre ez ezek ezt és fel hány hanem hogy hogyan hol hova honnan így is itt jó ki kell két le lehet lesz lett még meg mert mi miért
    mikor milyen minden mint mit mivel most már mennyi mely melyik neki nekem néha ő ők olyan ott össze pedig s sem sok szerint
    számára te több túl után utána van vannak vagy vagyok valami volt voltak vele velem""",
    "italian": """
    non mai
    a abbiamo ad agli ai al alla alle allo anche ancora aveva avere avevo c che chi ci cioè come con cosa così cui d da dagli dai dal
    dalla dalle dallo degli dei del dell della delle dello di dopo dov dove due e è ed era erano essere fa faccio fino fra gli ha hai hanno
    ho i il in io l la le lei li lo loro lui ma me mi mia mie miei mio molto ne negli nei nel nell nella nelle nello noi nostra nostri
    nostro o ogni per perché però più poi prima può qual quale quali quand quando quanta quante quanti quanto quel quella quelle quelli quello
    quest questa queste questi questo qui quindi sei se senza si sia siamo sono sta stata stato su sua sue sugli sui sul sulla sulle suo
    suoi ti tra tu tua tuo tutti tutto un una uno va vi voi""",
    "norwegian": """
    ikke ingen aldri kun
    å alle alt andre at av bare ble bli blir blitt da de deg dem den denne der dere deres det dette din dine disse ditt du eg ein eit eller
    en enn er et etter for fordi fra få får før gjør ha hadde han hans har hennes henne her hos hun hva hvem hver hvilke hvilken hvilket
    hvis hvor hvordan hvorfor i inn ja jeg trenger slags selv kan kom kunne man mange med meg mellom men mer min mine mitt mot mye må noe noen nå når og også
    om opp oss over på seg siden sin sine sitt skal skulle slik som så til ut under uten var ved vi vil ville vår våre være vært""",
    "portuguese": """
    não nunca nem
    a ainda ao aos aquela aquele as à às até com como cuja da das de dela dele deles depois do dos e é ela elas ele eles em entre era eram
    essa esse esta está estão estava este eu foi fomos foram fui há isso isto já lhe lhes lo mais mas me mesmo meu meus minha minhas muito na nas
    no nos nós nossa nosso num numa o onde os ou para pela pelas pelo pelos per pode por porque porquê qual quais quando quanta quantas
    quanto quantos que quê quem se seja sem ser será seu seus sua suas são só sou também te tem têm temos tenho ter teu teve tinha tu tua
    um uma umas uns vai você vocês""",
    "romanian": """
    nu nici fără
    a acea aceasta aceea acel acela această acest acesta această acestea acești ai aia aici al ale am ar are as asta așa asupra au avea avem
    aveți ca că când cât câte câți care ce cea cei cel cele cine cu cui cum da dar de deci decât din dintre după ea ei ele era este eu fi
    fie fost i ia iar îi îl îmi în încă între își îți la le lor lui mă mai mea mei mele meu mi mult noastră noi nostru o ori pe pentru
    peste pot prin sa să sale sau său se și sînt sunt spre te tu tot toate toți tău ta un una unde unei unui vă voi vor vreau""",
    "spanish": """
    no nunca nada ni
    a al algo ante antes aquel aquella así aún aunque cada como cómo con cual cuál cuales cuáles cuando cuándo cuanta cuánta cuántas cuanto
    cuánto cuántos de del desde donde dónde dos durante e el él ella ellas ellos en entre era eran es esa esas ese eso esos esta está están
    estaba estar este esto estos estoy fue fueron fui ha había han hasta hay he la las le les lo los más me mi mí mientras mis mucho muy
    nos nosotros nuestra nuestro o os otra otro para pero poco por porque pues puede que qué quien quién quienes se sea según ser si sido
    sin sobre sois somos son soy su sus también tan te tenemos tener tengo tenía ti tiene tienen todo todos tu tú tus un una unas uno unos
    usted va vamos voy y ya yo""",
    "swedish": """
    inte aldrig ingen inga
    å alla allt andra att av bara blev bli blir då de dem den denna deras dess dessa det detta dig din dina ditt dom du där efter eller
    en enligt er era ett från för få får gör ha hade han hans har henne hennes hon honom hos hur här i in inom jag ju kan kom kunde
    man med mellan men mer mig min mina mitt mot mycket måste ni nu nån något någon några när och också om oss på sedan sen sig sin
    sina sitt ska skall skulle som så till under upp ut utan vad var vara varför varit varje vart vem vems vi vid vilka vilken vilket
    vill vår våra åt än är över""",
    "turkish": """
    değil yok
    ama bana bazı belki ben benden beni benim bile bir biz bizim bu buna bunda bunu bunun burada çok çünkü da daha de diye en
    gibi göre hangi hem hep hepsi her için ile ise kadar kaç ki kim kime kimin mı mi mu mü nasıl ne neden nerede nereye nereden
    niye o olan olarak oldu olduğu olsun ona onlar onlara onların onu onun orada sana sen seni senin siz sizin şey şimdi şu
    tüm üzere var ve veya ya yani zaman""",
}
_ONLY_TELLING = {
    ENGLISH: "also come end get got never new no nor not now ok old one per plus said till two vs want word",
    "danish": "mandag tirsdag onsdag lørdag søndag",
    "dutch": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "finnish": "maanantaina tiistaina keskiviikkona torstaina perjantaina lauantaina sunnuntaina",
    "french": "mai juin juillet août lundi mardi mercredi jeudi vendredi samedi dimanche",
    "german": "mai juni juli montag dienstag mittwoch donnerstag freitag samstag sonntag uhr",
    "hungarian": "hétfőn kedden szerdán csütörtökön pénteken szombaton vasárnap",
    "italian": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "norwegian": "mai mandag tirsdag onsdag torsdag lørdag søndag",
    "portuguese": "segunda terça quarta quinta sexta",
    "romanian": "luni marți miercuri joi vineri sâmbătă duminică",
    "spanish": "lunes martes miércoles jueves viernes sábado domingo",
    "swedish": "måndag tisdag onsdag torsdag fredag lördag söndag",
    "turkish": "pazartesi salı çarşamba perşembe cuma cumartesi pazar",
}
"""Words of a language that are searched, but tell it too."""
_ALSO_ENGLISH = frozenset(
    """
    ad ant ate bare bin bis car care cat comment dare dies dig dim din dit dog dom dont door dove due encore era far fin fur ham hat
    hay hem hole hun inn jag mal man mar mat mate meme men mere met min mine mint mod mot nog nun ole opp ore ori ons pan par pas poi pot
    prima pro quest sale sea ser ska sin sine sis sit som son sound sue sur tan toe ton tot van vers via vid ville volt war wen""".split()  # noqa: SIM905  a list of so many words is read more easily
)
"""Function words elsewhere that alone tell no language, because English has them too."""
_IN_NAMES = frozenset(
    """ama ben dan das dell del della den der des die dina dos ella era esa han hans inga jos kai kim las lei les los mai marti mei mia mina mon
    rien san sera son van von""".split()  # noqa: SIM905  a list of so many words is read more easily
)
"""Words that alone tell no language, because names have them, such as Los Angeles. Neither do words of two letters."""
_SCRIPTS = {
    name: re.compile(f"[{letters}]+")
    for name, letters in {
        "arabic": "\u0621-\u064a",
        "greek": "\u0370-\u03ff\u1f00-\u1fff",
        "hebrew": "\u05d0-\u05ea",
        "hindi": "\u0900-\u0963\u0970-\u097f",
        "russian": "\u0430-\u044f\u0451",
    }.items()
}
"""The words of a script that has a language of its own here. Those with letters of Persian, Ukrainian and the like are none of it."""
_OF_SCRIPTS = """
    أن إن أو أي أين إلى التي الذي الذين أم أنا أنت بعد بعض بين تلك ثم حتى حيث ذلك سوف عن عند عندما على فقط في قبل قد كان كانت كل كم كما كيف لكن
    اللي ايه إيه ازاي إزاي امتى إمتى بتاع بتاعت بتاعة بكام ده دي دول فين كام ليه مش مين هنا احنا إحنا انا انت هو بس لما لو لسه برضه كده معايا عندي عندنا
    لا لم لن لها له لي لماذا ليس ليست ما ماذا متى مع من منذ مني هذا هذه هل هم هنا هناك هو هي وهو وهي ولا يا يكون نحن أنه أنها به بها فيه فيها منه منها
    όχι δεν μη μην από αυτά αυτές αυτή αυτό αυτός για δε είμαι είναι είχε ένα ένας έχει έχω η ήταν θα και κάθε με μετά μας μου να ο οι όταν πόσα πόσο πόσες
    πότε πού πως πώς που ποια ποιο ποιος σας σε σου στα στη στην στις στο στον στους τα τη την της τι τις το τον του τους των ως
    לא אבל או אחרי אין איך אילו איפה אל אם אנחנו אני את אתה אתם באיזה בין גם הוא היא היה היו היתה הייתה הם הן זאת זה זו יש כבר כי כל כמה כמו לאן
    לי לך לו לה לנו למה לפני מאיפה מה מי מתי נו על עד עם עוד רק של שלה שלו שלי שלך שלנו
    नहीं मत न अपना अपनी अपने और इस इसका इसकी इसके इसे इन उन उनका उनकी उनके उस उसका उसकी उसके उसे एक ऐसा कब कहाँ कहां का कि कितना कितनी कितने किस किसका किसकी किसके किसने
    किसे की कुछ के को कोई कौन कौनसा क्या क्यों गया गई गए जब जहाँ जिस जैसे जो तक तब तो था थी थे द्वारा ने पर भी मुझे में मेरा मेरी मेरे मैं मैंने यह यहाँ या ये
    रहा रही रहे लिए वह वहाँ वाला वाली वाले वे से हम हमारा हमारी हमारे ही हुआ हुई हुए है हैं हो होता होती होना
    не нет ни никогда а без буду будет будем будут бы был была были было быть в вам вами вас ваш ваша ваше ваши весь во вот все всё всего всей всем всех всеми всю вы где да
    для до его ее её ей ему если есть еще ещё ею же за зачем и из или им ими их к как какая какие каким какими каких какое какой каком какого какому какую
    ко когда кого кому кто которая которого которое которой которому котором которую которые который которым которыми которых куда кем ком ли между меня
    мне мной мог могла могли могу может моя моё мое мои моего моей моему моём моем моих моим мою мой мы на над нам нами нас наш наша наше наши нашего нашей
    нашем нашу него неё нее ней нему нём нем ним ними них но о об обо он она они оно от откуда перед по под после потом почему при про с сам сама сами
    само свой своя свои своё своего своей своему своём своих своим свою себе себя собой сколько скольких со так такая такие такое такой там те тебе тебя
    тем тех то того тоже той только том тому тот ту ты у уже чего чей чем чему чём через что чтобы чьё чьего чьей чьи чья эта эти этим этих это этому этой
    этом этот этого эту я"""
"""The stop words in scripts that have one language here."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
_WORDS = re.compile(WORD)
_ASCII_WORDS = re.compile("[A-Za-z0-9]+")
_SHORT = 2
_MOST = 2
"""If more languages than this are equally likely, none is judged."""


class _Lists(NamedTuple):
    """The words that tell languages, in lower case."""

    stopwords: Mapping[str, frozenset[str]]
    """The stop words of each language in Latin script, without accents."""
    of_scripts: frozenset[str]
    """Those of the others, without accents."""
    telling: Mapping[str, tuple[str, ...]]
    """The languages of each word of Latin script that tells one."""
    foreign: frozenset[str]
    """Those of these words that English has not. A text without any is in none of the other languages, as far as can be told."""


@cache
def _lists() -> _Lists:
    telling: defaultdict[str, list[str]] = defaultdict(list)
    for name, words in _STOPWORDS.items():
        for word in {form for each in f"{words} {_ONLY_TELLING[name]}".split() for form in (each, folded(each))}:
            if len(word) > 1 or not word.isascii():  # letters are part of everything
                telling[word].append(name)
    return _Lists(
        {name: frozenset(map(folded, words.split())) for name, words in _STOPWORDS.items()},
        frozenset(map(folded, _OF_SCRIPTS.split())),
        {word: tuple(names) for word, names in telling.items()},
        frozenset(word for word, names in telling.items() if ENGLISH not in names) - _ALSO_ENGLISH,
    )


def is_plain(text: str) -> bool:
    """Return whether a text has no word that is surely in another language than English."""
    return text.isascii() and _lists().foreign.isdisjoint(text.lower().split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return _SENTENCE.split(text)


def script_of(word: str) -> str:
    """Return the language that a word is in by its letters; empty if they are of several."""
    if word.isascii():
        return ""
    return next((name for name, pattern in _SCRIPTS.items() if pattern.fullmatch(word)), "")


@lru_cache(maxsize=64)
def stopwords(languages: tuple[str, ...]) -> frozenset[str]:
    """Return the stop words of a question in one of these languages, without accents. If there are none, they are those of English."""
    lists = _lists()
    return lists.of_scripts.union(*(lists.stopwords[name] for name in languages or (ENGLISH,)))


def words_of(text: str) -> list[str]:
    """Return the words of a text, as far as they tell its language, in lower case."""
    return (_ASCII_WORDS if text.isascii() else _WORDS).findall(text.casefold())


def languages(words: Iterable[str], least: int = 1) -> tuple[str, ...]:
    """Return the language that most function words of a text belong to, or two if they are equally likely; empty if unsure.

    Args:
        words: The words of the text, in lower case.
        least: How many function words there must be at least.
    """
    lists = _lists()
    telling = lists.telling
    told = [word for word in words if word in telling]
    if not told or len(told) < least:
        return ()
    counts = Counter(name for word in told for name in telling[word])
    most = max(counts.values())
    if counts[ENGLISH] == most:
        return (ENGLISH,)
    best = tuple(sorted(name for name, count in counts.items() if count == most))
    foreign = lists.foreign.intersection(told)
    is_sure = any(len(word) > _SHORT and word not in _IN_NAMES for word in foreign) or (foreign and len(set(told)) > 1)
    return best if is_sure and len(best) <= _MOST else ()
