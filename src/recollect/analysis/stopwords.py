"""Words too common to search for, by language: articles, pronouns, prepositions, auxiliaries.

Case folded; "dont" is for those who leave the apostrophe out. They are indexed all the same, so that a query made of
nothing else still finds its text; they are only left out of queries that have better words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_LISTS = {
    "english": """
        a about above after again against all am an and any are arent as at be because been before being below
        between both but by can cannot cant could couldnt d did didnt do does doesnt doing dont down during each
        few for from further had hadnt has hasnt have havent having he her here hers herself him himself his how
        i if im in into is isnt it its itself ive just let ll m me more most my myself no nor not now
        of off on once only or other our ours ourselves out over own re s same shall she should shouldnt so some
        such t than that thats the their theirs them themselves then there theres these they theyre this those
        through to too under until up us ve very was wasnt we were werent what whats when where which while who
        whom whose why will with wont would wouldnt you your youre yours yourself yourselves
    """,
    "german": """
        aber als am an auch auf aus bei bin bis bist da damit dann das dass dein deine dem den der des dich die dir
        doch du durch ein eine einem einen einer eines er es euch euer für hat hatte hatten hier ich ihm ihn ihnen
        ihr ihre im in ins ist ja kann kein keine können man mein meine mich mir mit nach nicht noch nun nur ob oder
        ohne sehr sein seine sich sie sind so soll über um und uns unser unter vom von vor war waren was weil welche
        wenn wer werden wie wir wird wo wurde wurden zu zum zur
    """,
    "french": """
        à au aux avec ce ces cet cette c d dans de des du elle elles en est et été être eu eux fait il ils j je l la
        le les leur leurs lui m ma mais me même mes moi mon n ne nos notre nous on ont ou où par pas pour qu que quel
        quelle qui s sa se ses si son sont sur t ta te tes toi ton tu un une vos votre vous y
    """,
    "spanish": """
        a al algo ante antes como con contra cual cuando de del desde donde dos el él ella ellas ellos en entre era
        es esa ese eso esta está estas este esto estos fue ha hasta hay la las le les lo los más me mi mis muy nada
        ni no nos o os para pero por porque que qué quien se ser si sí sin sobre son su sus también te tiene todo tu
        tus un una uno y ya yo
    """,
    "italian": """
        a ad ai al alla alle allo anche c che chi ci come con cui da dal dalla dei del della delle di do e è ed era
        essere gli ha hanno ho i il in io l la le lei li lo loro lui ma me mi mia mio ne nei nel nella no noi non o per
        perché più quale quando quanto quella quello questa questo se sei si sì sia sono su sua sul sulla suo tra tu
        tua tuo tutti tutto un una uno vi voi
    """,
    "portuguese": """
        a ao aos as às até com como da das de dela dele do dos e é ela elas ele eles em entre era essa esse esta está
        este eu foi há isso isto já lhe mais mas me mesmo meu minha muito na não nas nem no nos nós o os ou para pela
        pelo por qual quando que quem se sem ser seu sua são só também te tem um uma você
    """,
    "dutch": """
        aan al als bij dan dat de der deze die dit doch door dus een en er ge geen had heb hebben heeft hem het hier
        hij hoe hun iets ik in is ja je kan maar me meer men met mij mijn na naar niet nog nu of om omdat onder ons
        ook op over te tegen toch toen tot u uit uw van veel voor want waren was wat we wel werd wie wij wil worden
        zal ze zei zich zij zijn zo zonder zou
    """,
    "swedish": """
        alla att av blev bli blir de dem den denna deras det detta dig din du där då efter ej eller en er ett från för
        ha hade han hans har hon hur här i icke in inte jag kan man med men mig min mitt mot mycket ni nu när och om
        oss på sedan sig sin sitt skulle som så till under upp ut utan vad var vara vem vi vid vilken än är över
    """,
    "russian": """
        а без бы был была были было быть в вам вас во вот все всё вы да для до его ее её если есть еще ещё же за и из
        или им их к как ко когда кто ли мне мы на над нас не него нее нет ни них но ну о об он она они оно от по под
        при с со так там то тогда того тоже только ты у уже что чтобы эта эти это этот я
    """,
}

STOPWORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {language: frozenset(words.split()) for language, words in _LISTS.items()}
)
